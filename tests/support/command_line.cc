#include "tests/support/command_line.h"

#include <gtest/gtest.h>

#include "tools/commands.h"

namespace lookback::testing {

Outcome RunLookback(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"lookback"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = tools::RunCommandLine(static_cast<int>(argv.size()), argv.data());
  std::string out = ::testing::internal::GetCapturedStdout();
  return {code, std::move(out), ::testing::internal::GetCapturedStderr()};
}

}  // namespace lookback::testing
