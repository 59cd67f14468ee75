#!/usr/bin/env bash
# MetaX's compiler for CMake: drops the flags that mxcc does not know.

set -eu
args=()
while [ $# -gt 0 ]; do
  case "$1" in
    -pthread) ;;
    -B) shift ;;
    -B*) ;;
    *) args+=("$1") ;;
  esac
  shift
done
exec "${MACA_PATH:-/opt/maca}/mxgpu_llvm/bin/mxcc" "${args[@]}"
