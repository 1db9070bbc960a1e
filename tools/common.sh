# shellcheck shell=bash
# What the scripts here share; sourced, never run. Leaves the caller in the repository root.
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

server_pid=""

cleanup() {
  if [[ -n $server_pid ]] && kill -0 "$server_pid" 2>/dev/null; then
    kill -TERM "$server_pid"
    wait "$server_pid" || true
  fi
}
server_failed() {
  say "lookback-server: $1; its log:"
  cat "$server_log"
  exit 1
}

# start_server MODEL FOLDER: serves MODEL on a free port of this machine, the log in FOLDER; sets
# `address`. The server ends with the script.
start_server() {
  local bin=build/release/bin model=$1 out=$2
  server_log=$out/server.log
  trap cleanup EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  rm -f "$out/port"
  "$bin/lookback-server" --model "$model" --listen 127.0.0.1:0 --port-file "$out/port" >"$server_log" 2>&1 &
  server_pid=$!
  local tries=300  # of 0.1 s
  until [[ -s $out/port ]] && address=127.0.0.1:$(<"$out/port") &&
    "$bin/lookback" client "$address" health >/dev/null 2>&1; do
    kill -0 "$server_pid" 2>/dev/null || server_failed "ended before it served"
    ((--tries > 0)) || server_failed "not healthy after 30 s"
    sleep 0.1
  done
}

stop_server() {
  local status=0
  kill -TERM "$server_pid"
  wait "$server_pid" || status=$?
  server_pid=""
  ((status == 0)) || server_failed "exit code $status after SIGTERM"
}
