#!/usr/bin/env bash
# Builds, tests and tries out everything that runs on a machine with an NVIDIA GPU, without network.
set -euo pipefail

usage() {
  cat <<'END'
Usage: scripts/gpu_check.sh [--output DIR] [PART...]

Parts, all of them if none is named; those between the first and the last need what `build` made:
  build        the preset cuda for the GPUs of this machine
  tests        the suites of every device, as CUDA/*, on the first GPU and on the last
  conformance  every op against float64 on the CPU
  training     a small GPT-2 on GPU and CPU, whose losses must agree, and in bfloat16; GPT-2 124M
  infini_rt    InfiniRT on the CPU and on NVIDIA: its suite, stress program and benchmarks

Needs nvcc 12.4, a C++20 compiler, CMake 3.25, Ninja, Python 3 and the packages that
`scripts/install_deps.sh --list` prints. On a machine where nothing can be installed, bring Debian's
packages unpacked (apt-get download, dpkg -x) and name the folder:
  CMAKE_PREFIX_PATH=FOLDER/usr LD_LIBRARY_PATH=FOLDER/usr/lib/x86_64-linux-gnu scripts/gpu_check.sh
  --output DIR  folder for logs and results (build/gpu_check)
END
}

all_parts=(build tests conformance training infini_rt)
output=build/gpu_check
parts=()
while (($#)); do
  case $1 in
    --output) output=${2:?--output needs a folder}; shift ;;
    -h | --help) usage; exit 0 ;;
    infini_rt | build | tests | conformance | training) parts+=("$1") ;;
    *) echo "gpu_check.sh: unknown option or part '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
((${#parts[@]})) || parts=("${all_parts[@]}")
output=$(realpath -m -- "$output")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command -v nvidia-smi >/dev/null || { echo "gpu_check.sh: no NVIDIA driver: nvidia-smi is missing" >&2; exit 2; }
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
mkdir -p "$output"
jobs=${JOBS:-$(nproc)}
infini_train=build/cuda/bin/infini-train

# logged NAME COMMAND...: the output goes to a file, and its end to the terminal where it fails.
logged() {
  local log=$output/$1.log
  shift
  "$@" >"$log" 2>&1 && return
  tail -n 40 "$log"
  return 1
}

run_build() {
  logged configure cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES="${CUDA_ARCHITECTURES:-native}" || return
  logged build cmake --build --preset cuda --parallel "$jobs" --target infini-train tests_cuda -- -k 0 && return
  grep -E -m 40 'error|FAILED' "$output/build.log"
  return 1
}

run_tests() {
  local status=0 last device log
  last=$(($(nvidia-smi --list-gpus | wc -l) - 1))
  for device in $(printf '%s\n' 0 "$last" | uniq); do
    log=$output/tests_cuda$device.log
    INFINI_TRAIN_TEST_DEVICE_INDEX=$device OMP_NUM_THREADS=2 timeout 240 ctest --preset cuda --label-regex '^cuda$' \
      --parallel "$((jobs < 8 ? jobs : 8))" --timeout 200 >"$log" 2>&1 || status=1
    echo "-- cuda:$device"
    grep -m 12 -A 8 'Failure$' "$log" || true
    sed -n '/tests passed/,$p' "$log"
  done
  return "$status"
}

run_conformance() {
  local status=0
  timeout 240 "$infini_train" conformance --device cuda --output_dir "$output/conformance" \
    >"$output/conformance.log" 2>&1 || status=1
  tail -n 25 "$output/conformance.log"
  return "$status"
}

# train NAME MODEL OPTION...: trains on the compiler's C++ headers and prints the end of the log.
train() {
  local name=$1 model=$2
  shift 2
  logged "train_$name" "$infini_train" train --model "$model" --input_bin "$output/data/train_*.bin" --seed 1 \
    --metrics_file "$output/train_$name.jsonl" "$@" || return
  echo "-- $name"
  tail -n 3 "$output/train_$name.log"
}

run_training() {
  local headers device
  headers=$(LC_ALL=C "${CXX:-c++}" -x c++ -E -v /dev/null 2>&1 | sed -n '/^#include <...> search starts here:$/{n;s/^ *//p}')
  "$infini_train" info --device cuda || return
  rm -rf "$output/data" "$output"/train_*.jsonl
  logged tokenize "$infini_train" tokenize --tokenizer bytes --output "$output/data" "$headers" || return
  for device in cuda cpu; do
    train "$device" gpt2-nano --device "$device" --num_iteration 20 --batch_size 8 --sequence_length 128 || return
  done
  python3 - "$output" <<'END' || return
import json, sys
losses = [[record["loss"] for record in map(json.loads, open(f"{sys.argv[1]}/train_{device}.jsonl")) if "loss" in record]
          for device in ("cuda", "cpu")]
worst = max(abs(a - b) / abs(b) for a, b in zip(*losses))
print(f"float32 losses of {len(losses[0])} steps on cuda and cpu: at most {worst:.1e} apart")
sys.exit(len(losses[0]) != 20 or not worst <= 1e-5)
END
  train nano_bfloat16 gpt2-nano --device cuda --dtype bfloat16 --num_iteration 500 --log_interval 100 \
    --batch_size 8 --sequence_length 128 --learning_rate 1e-3 || return
  train gpt2_bfloat16 gpt2 --device cuda --dtype bfloat16 --num_iteration 10 --batch_size 8 --sequence_length 1024
}

run_infini_rt() {
  infini_rt/scripts/test_on_nvidia.sh build/infini_rt_nvidia "$output/infini_rt"
}

failed=()
for part in "${parts[@]}"; do
  printf '\n== %s\n' "$part"
  start=$SECONDS
  "run_$part" || failed+=("$part")
  echo "$part: $((SECONDS - start)) s"
done
if ((${#failed[@]})); then
  echo "Failed: ${failed[*]}. Logs: $output" >&2
  exit 1
fi
