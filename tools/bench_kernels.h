// `lookback bench kernels` and `lookback bench cpu`: no model, just this machine.
#pragma once

namespace CLI {
class App;
}

namespace lookback::tools {

void AddKernelBenches(CLI::App& bench, int& exit_code);

}  // namespace lookback::tools
