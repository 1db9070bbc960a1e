// `lookback` in the test's own process.
#pragma once

#include <string>
#include <vector>

namespace lookback::testing {

struct Outcome {
  int code;  ///< exit code
  std::string out;
  std::string err;
};

/// Runs `lookback ARGUMENTS…` and captures what it prints.
Outcome RunLookback(const std::vector<std::string>& arguments);

}  // namespace lookback::testing
