#!/usr/bin/env bash
# The whole path on the bundled model: install, build, convert, serve, stream a generation, look at what
# the windows save, stop. Takes no arguments; leaves build/demo/demo.safetensors.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

bin=build/release/bin
out=build/demo
model=$out/demo.safetensors
server_pid=""

cleanup() {
  if [[ -n $server_pid ]] && kill -0 "$server_pid" 2>/dev/null; then
    kill -TERM "$server_pid"
    wait "$server_pid" || true
  fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

up_to_date() {
  [[ -f $model && ! $bin/lookback -nt $model && -z $(find tools/demo -newer "$model" -print -quit) ]]
}

server_failed() {
  say "lookback-server: $1; its log:"
  cat "$out/server.log"
  exit 1
}

start_server() {
  rm -f "$out/port"
  "$bin/lookback-server" --model "$model" --listen 127.0.0.1:0 --port-file "$out/port" >"$out/server.log" 2>&1 &
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

# show COMMAND…: what is run, then its output.
show() {
  printf '\n$ %s\n' "$*"
  "$@"
}

tools/setup.sh build
stage "build" build_release -- lookback lookback-server
mkdir -p "$out"
if ! up_to_date; then stage "convert tools/demo" "$bin/lookback" convert tools/demo -o "$model"; fi
start_server
say "lookback-server on $address serves $model"
show "$bin/lookback" client "$address" generate --prompt 'The LORD is my' --stats
show "$bin/lookback" client "$address" windows
show "$bin/lookback" client "$address" memory
stop_server
printf '\nlookback-server drained and stopped, exit code 0\n'
