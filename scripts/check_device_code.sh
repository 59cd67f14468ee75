#!/usr/bin/env bash
# Compiles the shared kernels as CUDA, without a GPU: to machine code, since its assembler knows what a block
# can have, but unoptimised, since this is not about speed, and for the host as far as its compiler's errors
# go, since nvcc hands it other text than it was given. Warnings are errors.
set -euo pipefail

usage() {
  cat <<'END'
Usage: scripts/check_device_code.sh [FILE...]

Needs nvcc. Without files: every kernel below backends/simt/kernels, and backends/cuda itself as its preset
compiles it (in build/device_code; not attention by cuDNN, which needs cuDNN's headers).
END
}
if [[ ${1-} == -h || ${1-} == --help ]]; then
  usage
  exit
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
nvcc=$(command -v nvcc || true)
if [[ -z $nvcc ]]; then
  echo "check_device_code.sh: nvcc is missing" >&2
  exit 2
fi

files=("$@")
whole=false
((${#files[@]})) || { files=(backends/simt/kernels/*/*.cc) && whole=true; }
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT

compile() {
  "$nvcc" -std=c++20 --expt-relaxed-constexpr -x cu -c -arch=sm_90 -Xcicc -O0 -Xptxas -O0 \
    -Xcompiler -fsyntax-only -Werror all-warnings -I. -Ibackends/cuda/src/common -o "$output/${1//\//_}.o" "$1" ||
    { echo "check_device_code.sh: $1 does not compile as CUDA" >&2; return 1; }
}
export -f compile
export nvcc output
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c 'compile "$1"' compile
echo "${#files[@]} files compile as CUDA"
if $whole; then
  build=build/device_code
  cmake --preset cuda -B "$build" --log-level=WARNING -DBUILD_TEST=OFF -DINFINITRAIN_CUDA_CUDNN=OFF \
    -DCMAKE_CUDA_ARCHITECTURES=90 -DINFINITRAIN_WARNINGS_AS_ERRORS=ON
  mapfile -t objects < <(ninja -C "$build" -t targets all |
    grep -oE '^backends/cuda/CMakeFiles/[a-z0-9_]*\.dir/src/[^:]*\.o')
  cmake --build "$build" --target "${objects[@]}"
  echo "${#objects[@]} files of backends/cuda compile"
fi
