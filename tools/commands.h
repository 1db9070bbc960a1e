// The subcommands of `lookback`. Each Add… declares its flags on `app` and, when chosen, runs and
// stores the exit code: 0, 1 where a check failed, 2 for bad input or usage (format.md, "Command
// line").
#pragma once

#include "engine/status.h"

namespace CLI {
class App;
}

namespace lookback::tools {

void AddConvert(CLI::App& app, int& exit_code);
void AddCalibrate(CLI::App& app, int& exit_code);
void AddInspect(CLI::App& app, int& exit_code);
void AddWindows(CLI::App& app, int& exit_code);
void AddLogits(CLI::App& app, int& exit_code);
void AddGenerate(CLI::App& app, int& exit_code);
void AddVerify(CLI::App& app, int& exit_code);
void AddTokenize(CLI::App& app, int& exit_code);  // tokenize and detokenize
void AddBench(CLI::App& app, int& exit_code);
void AddClient(CLI::App& app, int& exit_code);

/// Prints "lookback: MESSAGE" as one line on stderr and returns exit code 2; 0 for OK.
int Report(const Status& status);

/// Runs the command line; what main() calls and tests call. Returns the exit code.
int RunCommandLine(int argc, const char* const* argv);

}  // namespace lookback::tools
