#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "tools/commands.h"

namespace lookback::tools {

int Report(const Status& status) {
  if (status.ok()) return 0;
  std::string line = status.message();
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  std::fprintf(stderr, "lookback: %s\n", line.c_str());
  return 2;
}

int RunCommandLine(int argc, const char* const* argv) {
  CLI::App app{
      "Convert, inspect, run and measure checkpoints whose heads look back differently far."};
  app.name("lookback");
  app.require_subcommand(1);
  app.set_version_flag("--version", LOOKBACK_VERSION);
  int exit_code = 0;
  AddConvert(app, exit_code);
  AddCalibrate(app, exit_code);
  AddInspect(app, exit_code);
  AddWindows(app, exit_code);
  AddLogits(app, exit_code);
  AddGenerate(app, exit_code);
  AddVerify(app, exit_code);
  AddTokenize(app, exit_code);
  AddBench(app, exit_code);
  AddClient(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
    return Report(InvalidArgument(error.what(), " (see --help)"));
  }
  return exit_code;
}

}  // namespace lookback::tools
