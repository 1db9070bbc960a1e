# shellcheck shell=bash
# What setup.sh, test.sh and demo.sh share; sourced, never run. Leaves the caller in the repository root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C.UTF-8

say() { printf '%s\n' "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# Compile jobs: one a core, but no more than memory carries (a file that includes gRPC takes about
# 1 GiB under the sanitizers).
jobs() {
  local cores memory_kib by_memory
  cores=$(nproc)
  memory_kib=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
  by_memory=$((${memory_kib:-1572864} / 1572864))
  if ((by_memory < 1)); then by_memory=1; fi
  echo $((cores < by_memory ? cores : by_memory))
}

# stage NAME COMMAND…: one line that says what is done and how long it took. The output goes to
# build/logs/NAME.log and is shown only if the command fails; then the script ends.
stage() {
  local name=$1 log start status=0
  shift
  mkdir -p build/logs
  log="build/logs/${name//[ \/]/-}.log"
  start=$SECONDS
  printf '%-28s' "$name"
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if ((status != 0)); then
    printf 'FAILED after %d s (exit code %d), from %s:\n' $((SECONDS - start)) "$status" "$log"
    tail -n 2000 "$log"
    exit 1
  fi
  printf '%4d s\n' $((SECONDS - start))
}

# configure_and_build DIR CMAKE_ARGUMENTS… [-- TARGETS…]
configure_and_build() {
  local dir=$1 arguments=() targets=()
  shift
  while (($# > 0)); do
    if [[ $1 == -- ]]; then
      shift
      targets=(--target "$@")
      break
    fi
    arguments+=("$1")
    shift
  done
  # `&&`: inside a stage, `set -e` is off.
  cmake -B "$dir" "${arguments[@]}" &&
    cmake --build "$dir" --parallel "$(jobs)" "${targets[@]}"
}

# The demo and the tests share build/release, hence the same flags in both.
build_release() { configure_and_build build/release --preset release -DLOOKBACK_WERROR=ON "$@"; }
