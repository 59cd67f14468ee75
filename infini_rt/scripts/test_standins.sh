#!/usr/bin/env bash
# Builds and tests every accelerator's binding over its stand-in SDK, one after the other.
#
#     infini_rt/scripts/test_standins.sh BUILD_DIR [VENDOR ...]
#
# One build directory serves all vendors in turn, as only the dispatch, the stand-in and the tests
# differ.

set -eu
source_dir="$(cd "$(dirname "$0")/.." && pwd)"
build="$1"
shift
all=(metax iluvatar moore cambricon ascend)
vendors=("$@")
[ ${#vendors[@]} -gt 0 ] || vendors=("${all[@]}")

for vendor in "${vendors[@]}"; do
  echo "== ${vendor}"
  options=()
  for other in "${all[@]}"; do
    options+=("-DWITH_${other^^}=$([ "${other}" = "${vendor}" ] && echo ON || echo OFF)")
  done
  cmake -S "${source_dir}" -B "${build}" -DCMAKE_BUILD_TYPE=Debug -DWITH_CPU=ON "${options[@]}" \
    -DINFINI_RT_STANDIN=ON -DINFINI_RT_BUILD_TESTING=ON >/dev/null
  cmake --build "${build}" --parallel "${JOBS:-2}" --target semantics_test core_test basic graphs \
    choosing_a_backend stream_ordered
  ctest --test-dir "${build}" --output-on-failure -R 'core_test|semantics_test|package|example'
done
