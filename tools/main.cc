#include "tools/commands.h"

int main(int argc, char** argv) { return lookback::tools::RunCommandLine(argc, argv); }
