#!/usr/bin/env bash
# The whole path on the bundled model: install, build, convert, serve, stream a generation, look at what
# the windows save, stop. Takes no arguments; leaves build/demo/demo.safetensors.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

bin=build/release/bin
out=build/demo
model=$out/demo.safetensors
up_to_date() {
  [[ -f $model && ! $bin/lookback -nt $model && -z $(find tools/demo -newer "$model" -print -quit) ]]
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
start_server "$model" "$out"
say "lookback-server on $address serves $model"
show "$bin/lookback" client "$address" generate --prompt 'The LORD is my' --stats
show "$bin/lookback" client "$address" windows
show "$bin/lookback" client "$address" memory
stop_server
printf '\nlookback-server drained and stopped, exit code 0\n'
