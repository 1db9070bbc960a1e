# What keeps a build from nothing short on two cores.

# The libraries' headers that most files of a target include, compiled once a target. None of ours, and no
# file may rely on them being there: the clang build of `tools/test.sh --all` goes without
# (CMAKE_DISABLE_PRECOMPILE_HEADERS).
target_precompile_headers(lookback_engine PRIVATE <nlohmann/json.hpp>)
# CLI11 is left out: its validators are objects that every file with its header would compile.
target_precompile_headers(lookback_tools PRIVATE <nlohmann/json.hpp>)
if(LOOKBACK_SERVER)
  target_precompile_headers(lookback_server_lib PRIVATE <grpcpp/grpcpp.h> <nlohmann/json.hpp>)
endif()

# Command lines are parsed once, but CLI11 is thousands of inline functions for the optimizer to chew.
# (Another level needs other precompiled headers, hence none for the exceptions.)
target_compile_options(lookback_tools PRIVATE ${LOOKBACK_QUICK})
set_source_files_properties(convert/weight_copy.cc TARGET_DIRECTORY lookback_tools
  PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O3> SKIP_PRECOMPILE_HEADERS ON)
if(LOOKBACK_SERVER)
  set_source_files_properties(options.cc TARGET_DIRECTORY lookback_server_lib
    PROPERTIES COMPILE_OPTIONS "${LOOKBACK_QUICK}" SKIP_PRECOMPILE_HEADERS ON)
endif()
