#!/usr/bin/env bash
# Builds InfiniRT with the CPU and NVIDIA backends on a machine with an NVIDIA GPU, runs the whole
# suite on both, then the stress program and the benchmarks.
#
#     infini_rt/scripts/test_on_nvidia.sh BUILD_DIR [RESULT_DIR]
#
# Needs CUDA 12 or later, a C++20 compiler, CMake 3.25, Python 3, and GoogleTest and Google Benchmark,
# which CMAKE_PREFIX_PATH may point at.

set -u
source_dir="$(cd "$(dirname "$0")/.." && pwd)"
build="$1"
results="${2:-$1/results}"
jobs="${JOBS:-$(nproc)}"
mkdir -p "${results}"
failed=0

step() {
  local name="$1"
  shift
  echo "== ${name}"
  if ! "$@" >"${results}/${name}.log" 2>&1; then
    echo "FAILED ${name}"
    tail -n 60 "${results}/${name}.log"
    failed=1
    return 1
  fi
}

step configure cmake -S "${source_dir}" -B "${build}" -DCMAKE_BUILD_TYPE=Release -DWITH_CPU=ON \
  -DWITH_NVIDIA=ON -DINFINI_RT_BUILD_TESTING=ON -DINFINI_RT_BUILD_BENCHMARKS=ON || exit 1
step build cmake --build "${build}" --parallel "${jobs}" || exit 1
step semantics_cpu env INFINI_RT_CPU_DEVICES=2 "${build}/tests/semantics_test" --gtest_filter='*/cpu'
step semantics_nvidia timeout 300 "${build}/tests/semantics_test" --gtest_filter='*/nvidia'
grep -E '^\[  (FAILED|PASSED|SKIPPED)' "${results}/semantics_nvidia.log"
step ctest ctest --test-dir "${build}" --output-on-failure -E semantics_test
step stress "${build}/tests/stress" --operations 1000000 --streams 32 --hold
cat "${results}/stress.log"
step dispatch "${build}/benchmarks/dispatch_benchmark" --benchmark_repetitions=9 \
  --benchmark_enable_random_interleaving=true --benchmark_report_aggregates_only=true
cat "${results}/dispatch.log"
step cpu_benchmark "${build}/benchmarks/cpu_benchmark" --benchmark_repetitions=5 \
  --benchmark_report_aggregates_only=true
cat "${results}/cpu_benchmark.log"
step nvidia_overhead "${build}/benchmarks/nvidia_overhead"
cat "${results}/nvidia_overhead.log"
exit "${failed}"
