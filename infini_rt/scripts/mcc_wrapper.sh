#!/usr/bin/env bash
# Moore Threads' compiler for CMake: drops the flags that mcc does not know, and shows it the headers
# and the library of the system's libstdc++.

set -eu
args=()
links=1
while [ $# -gt 0 ]; do
  case "$1" in
    -pthread) ;;
    -B) shift ;;
    -B*) ;;
    -c | -E | -S)
      links=0
      args+=("$1")
      ;;
    *) args+=("$1") ;;
  esac
  shift
done

gxx="${INFINI_RT_HOST_CXX:-g++}"
while read -r directory; do
  case "${directory}" in
    */c++/*) args+=(-isystem "${directory}") ;;
  esac
done < <("${gxx}" -E -x c++ -v /dev/null 2>&1 | sed -n '/^#include </,/^End of search/p')
if [ "${links}" = 1 ]; then
  args+=("-L$(dirname "$("${gxx}" -print-file-name=libstdc++.so)")")
fi
exec "${MUSA_HOME:-/usr/local/musa}/bin/mcc" "${args[@]}"
