#!/usr/bin/env bash
# Compiles the shared kernels as CUDA, without a GPU: to machine code, since its assembler knows what a block
# can have, but unoptimised, since this is not about speed, and for the host as far as its compiler's errors
# go, since nvcc hands it other text than it was given. Warnings are errors.
set -euo pipefail

usage() {
  cat <<'END'
Usage: scripts/check_device_code.sh [FILE...]

Needs nvcc. Without files: every kernel below backends/simt/kernels.
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
((${#files[@]})) || files=(backends/simt/kernels/*/*.cc)
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
