#!/usr/bin/env bash
# Builds, tests and benchmarks everything that runs on a machine with an NVIDIA GPU, without network.
set -euo pipefail

usage() {
  cat <<'END'
Usage: scripts/gpu_check.sh [--output DIR]

Needs nvcc, a C++20 compiler, CMake 3.25, Python 3, GoogleTest and Google Benchmark. On a machine where
nothing can be installed, bring Debian's packages unpacked (apt-get download, dpkg -x) and name the
folder: CMAKE_PREFIX_PATH=FOLDER/usr scripts/gpu_check.sh
  --output DIR  folder for logs and results (build/gpu_check)
END
}

output=build/gpu_check
while (($#)); do
  case $1 in
    --output) output=${2:?--output needs a folder}; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "gpu_check.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command -v nvidia-smi >/dev/null || { echo "gpu_check.sh: no NVIDIA driver: nvidia-smi is missing" >&2; exit 2; }
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv

mkdir -p "$output"
printf '\n== InfiniRT on the CPU and on NVIDIA\n'
infini_rt/scripts/test_on_nvidia.sh build/infini_rt_nvidia "$output/infini_rt"
