// `lookback bench kernels` and `lookback bench cpu`: no model, just this machine.
#pragma once

#include <vector>

namespace CLI {
class App;
}

namespace lookback::tools {

/// The middle one of the values, of which there is at least one; of an even number the one above.
double Median(std::vector<double> values);

void AddKernelBenches(CLI::App& bench, int& exit_code);

}  // namespace lookback::tools
