#!/usr/bin/env bash
# Builds the fuzz targets with clang, libFuzzer and the sanitizers, and runs each for SECONDS.
#   tools/fuzz.sh SECONDS [TARGET…]    TARGET: container_fuzz, unpickler_fuzz, … (tests/fuzz)
# Starts from tests/hostile/files. What was found interesting stays in build/fuzz/corpus/TARGET and is
# used again; an input that fails is written to build/fuzz/artifacts, and the script exits 1.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[[ ${1:-} =~ ^[1-9][0-9]*$ ]] || die "got '${1:-}', expected the seconds for each target"
seconds=$1
shift

# As in test.sh: sanitizers need their fixed addresses to be free.
if (($(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28) > 28)) && setarch -R true 2>/dev/null &&
  [[ -z ${LOOKBACK_FIXED_ADDRESSES:-} ]]; then
  LOOKBACK_FIXED_ADDRESSES=1 exec setarch -R tools/fuzz.sh "$seconds" "$@"
fi
command -v clang++ >/dev/null || die "clang++ is not installed (tools/setup.sh build test all)"

stage "build fuzz" configure_and_build build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1" -DCMAKE_CXX_COMPILER=clang++ -DLOOKBACK_FUZZ=ON \
  -DLOOKBACK_SERVER=OFF -DLOOKBACK_SENTENCEPIECE=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -- fuzz

# Stacks of allocations and a long memory of freed ones cost executions; what is found can be
# run again with them.
export ASAN_OPTIONS=malloc_context_size=0:quarantine_size_mb=8${ASAN_OPTIONS:+:$ASAN_OPTIONS}
mkdir -p build/fuzz/artifacts
declare -A wanted=()
for target in "$@"; do wanted[$target]=1; done
ran=0
while read -r target max_len seed_line; do
  if (($# > 0)) && [[ -z ${wanted[$target]:-} ]]; then continue; fi
  corpus=build/fuzz/corpus/$target
  # libFuzzer takes folders alone.
  mkdir -p "$corpus" "build/fuzz/seeds/$target"
  read -ra seeds <<<"$seed_line"
  while IFS= read -r -d '' file; do
    cp "$file" "build/fuzz/seeds/$target/$(sha256sum "$file" | cut -c1-16)"
  done < <(find "${seeds[@]}" -type f -print0)
  stage "$target" "build/fuzz/bin/$target" -max_total_time="$seconds" -timeout=10 -max_len="$max_len" \
    -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix=build/fuzz/artifacts/ \
    "$corpus" "build/fuzz/seeds/$target"
  grep -E 'number_of_executed_units|peak_rss_mb' "build/logs/$target.log" | sed 's/^/    /'
  ran=$((ran + 1))
done <build/fuzz/fuzz_targets.txt
((ran > 0)) || die "no such target: $*"
