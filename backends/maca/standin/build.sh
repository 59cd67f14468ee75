#!/usr/bin/env bash
# Makes a stand-in for MetaX's MACA SDK.
set -euo pipefail

usage() {
  cat <<'END'
Usage: backends/maca/standin/build.sh --body sim|cuda --output DIR

Builds a stand-in for the MACA SDK and installs it in DIR, laid out like the SDK: what the provider
maca takes as MACA_PATH.

  --body sim    kernels run in the SIMT emulator at warp 64, on any machine
  --body cuda   kernels run on NVIDIA GPUs; needs nvcc, and NCCL for collectives
  --output DIR  where to

ccache is used where CMAKE_CXX_COMPILER_LAUNCHER names it: by mxcc itself, so unset that variable when you
configure the provider.
END
}
fail() {
  printf 'build.sh: %s\n' "$1" >&2
  exit 2
}

body="" output=""
while (($#)); do
  case "$1" in
    -h | --help) usage && exit ;;
    --body) body=${2-} && shift 2 ;;
    --body=*) body=${1#*=} && shift ;;
    --output) output=${2-} && shift 2 ;;
    --output=*) output=${1#*=} && shift ;;
    *) fail "unknown argument '$1'; see --help" ;;
  esac
done
[[ $body == sim || $body == cuda ]] || fail "--body: expected sim or cuda, got '$body'"
[[ -n $output ]] || fail "--output: expected a folder"

mkdir -p "$output"
output=$(cd "$output" && pwd)
source=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cmake -S "$source" -B "$output/build" -G Ninja --log-level=WARNING -DMACA_STANDIN_BODY="$body" \
  -DMACA_STANDIN_LAUNCHER="${CMAKE_CXX_COMPILER_LAUNCHER-}" -DCMAKE_INSTALL_PREFIX="$output"
cmake --build "$output/build"
cmake --install "$output/build" >/dev/null
echo "The stand-in over $body is in $output: configure with -DINFINITRAIN_BACKEND=maca -DMACA_PATH=$output"
