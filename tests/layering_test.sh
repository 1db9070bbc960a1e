#!/usr/bin/env bash
# Checks which folder includes which (HACKING.md, "Folders"): server -> engine -> kernels, tools -> engine;
# Protobuf and gRPC are for server and tools/client alone.
#   layering_test.sh ROOT
# First it plants one include of every forbidden kind in a scratch tree, and fails if one goes unnoticed.
set -euo pipefail
root=${1:?usage: layering_test.sh ROOT}

grpc='^(lookback/v1/|grpc|google/protobuf/)'
folders='^(engine|kernels|server|tools|tests|proto)/'

# allowed FILE HEADER QUOTED: may FILE include HEADER?
allowed() {
  local file=$1 header=$2 quoted=$3
  if [[ $header =~ $grpc || $header == *.pb.h ]]; then
    [[ $file == server/* || $file == tools/client* ]]
    return
  fi
  if [[ ! $header =~ $folders ]]; then
    # A quoted path starts at the root, so that the rules below see where it leads.
    [[ $quoted == no ]]
    return
  fi
  case $file in
    kernels/*) [[ $header == kernels/* ]] ;;
    engine/*) [[ $header == engine/* || $header == kernels/* ]] ;;
    server/*) [[ $header == server/* || $header == engine/* ]] ;;
    tools/*) [[ $header == tools/* || $header == engine/* ]] ;;
  esac
}

# check TREE: prints each forbidden include as FILE:LINE: …; fails if there is one.
check() {
  local place header quoted bad=0
  while IFS=$'\t' read -r place header quoted; do
    if ! allowed "${place%%:*}" "$header" "$quoted"; then
      printf '%s: may not include %s\n' "$place" "$header"
      bad=1
    fi
  done < <(cd "$1" && find kernels engine server tools -type f \
    \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' \) -exec awk '
      match($0, /^[ \t]*#[ \t]*include[ \t]*["<][^">]*[">]/) {
        header = substr($0, RSTART, RLENGTH)
        quoted = header ~ /"$/ ? "yes" : "no"
        gsub(/^[^"<]*["<]|[">]$/, "", header)
        printf "%s:%d\t%s\t%s\n", FILENAME, FNR, header, quoted
      }' {} +)
  return $bad
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch"/{kernels/cpu,engine/tokenizer,server,tools/convert}
missed=0
expect() {  # expect good|bad FILE INCLUDE
  printf '#pragma once\n#  include %s  // planted\n' "$3" >"$scratch/$2"
  local verdict=good
  check "$scratch" >/dev/null || verdict=bad
  rm "$scratch/$2"
  if [[ $verdict != "$1" ]]; then
    printf 'the check itself is wrong: %s in %s was taken for %s\n' "$3" "$2" "$verdict"
    missed=1
  fi
}
expect good kernels/cpu/a.cc '"kernels/kernels.h"'
expect good engine/a.cc '"kernels/kernels.h"'
expect good engine/a.cc '<nlohmann/json.hpp>'
expect good server/a.cc '"lookback/v1/control.grpc.pb.h"'
expect good tools/client.cc '<grpcpp/grpcpp.h>'
for header in engine/status.h server/server.h tools/commands.h grpcpp/grpcpp.h; do
  expect bad kernels/cpu/a.cc "\"$header\""
done
for header in server/server.h tools/commands.h lookback/v1/control.pb.h proto/lookback/v1/control.pb.h; do
  expect bad engine/tokenizer/a.h "\"$header\""
done
expect bad engine/a.cc '<grpcpp/grpcpp.h>'
expect bad engine/a.cc '<google/protobuf/message.h>'
expect bad engine/tokenizer/a.h '"../../server/server.h"'
expect bad engine/a.cc '"status.h"'
expect bad server/a.cc '"tools/commands.h"'
expect bad server/a.cc '"kernels/kernels.h"'
expect bad tools/generate.cc '"server/server.h"'
expect bad tools/convert/a.cc '<grpcpp/grpcpp.h>'
expect bad tools/generate.cc '"lookback/v1/inference.pb.h"'

check "$root" || missed=1
exit $missed
