#!/usr/bin/env bash
# linkage_test.sh NM OBJECTS…: no object of a vector set has a weak symbol. The linker keeps one copy
# of those for everyone, which may be the one compiled with instructions that a CPU lacks.
set -euo pipefail
nm=$1
shift
failed=0
for object in "$@"; do
  if weak=$("$nm" --defined-only "$object" | grep -E ' [WVuU] '); then
    echo "$object has weak symbols:"
    echo "$weak"
    failed=1
  fi
done
# The x86 sets are built on x86 alone.
if [[ $(uname -m) == x86_64 ]] && (($# == 0)); then
  echo "no objects of sets"
  failed=1
fi
echo "$# objects checked"
exit "$failed"
