#!/usr/bin/env bash
# linkage_test.sh NM OBJECTS…: no object of a set of kernels has a weak symbol. The linker keeps one
# copy of those for everyone, which may be the one compiled with instructions that a CPU lacks.
set -euo pipefail
nm=$1
shift
checked=0
failed=0
for object in "$@"; do
  [[ $object == */cpu/* && $object != */cpu/reference/* ]] || continue
  # The table of a set, SET/SET.cc, is compiled for every CPU.
  set=$(basename "$(dirname "$object")")
  [[ $(basename "$object") != "$set".* ]] || continue
  checked=$((checked + 1))
  if weak=$("$nm" --defined-only "$object" | grep -E ' [WVuU] '); then
    echo "$object has weak symbols:"
    echo "$weak"
    failed=1
  fi
done
# The x86 sets are built on x86 alone.
if [[ $(uname -m) == x86_64 ]] && ((checked == 0)); then
  echo "no object of a set among: $*"
  failed=1
fi
echo "$checked objects checked"
exit "$failed"
