#!/usr/bin/env bash
# Builds, tests and tries out everything that runs on a machine with an NVIDIA GPU, without network.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: scripts/gpu_check.sh [--output DIR] [PART...]

Parts, all of them if none is named; those between the first and the last need what `build` made,
now or earlier:
  build        the preset cuda for the GPUs of this machine, or for CUDA_ARCHITECTURES, JOBS at a time
  tests        the suites of every device, as CUDA/*, on the first GPU and on the last;
               TEST_SUITES="tensor.GemmTest runtime" for some of them
  conformance  every op against float64 on the CPU
  training     a small GPT-2 and GPT-2 124M on GPU and CPU, whose losses must agree, and a small LLaMA of
               8192 positions, its gradients too, with every way to compute attention;
               COMPARE_FLAGS for tests/training/compare_devices
  transformers LLaMA 3.2 1B, 2 x 8192, in our program and in Transformers from equal weights: the norm
               of the first gradient and the losses of the first steps, at a learning rate of 1e-5, must
               agree within 1e-2
  determinism  two runs of 30 steps in bfloat16, with dropout, whose losses must be identical
  bench        training steps beside PyTorch's, in turn; bench:NAME,... for some of the cases
                 bf16_64  GPT-2 124M, 64 x 1024 tokens, bfloat16, beside torch.compile; gradients not
                          deterministic, which PyTorch's are not either
                 bf16_32  the same, 32 x 1024
                 fp32     8 x 1024, float32 without TF32, beside torch.compile
                 small    4 x 64, bfloat16, beside eager PyTorch
                 fp8      64 x 1024, our products in FP8, beside PyTorch's bfloat16 step
                 llama    LLaMA 3.2 1B, 8 x 1024, bfloat16, beside torch.compile: the fastest step, not
                          deterministic
                 llama_memory  the same in little memory: parameters in bfloat16, selective recomputation
                 llama_long  2 x 8192, selective recomputation, not deterministic
                 qwen3    Qwen3 0.6B, 8 x 1024, bfloat16, beside torch.compile
                 mixtral  a Mixtral of 1.2B, 8 x 1024, bfloat16, beside eager PyTorch
               BENCH_STEPS (30), BENCH_ROUNDS (2), BENCH_FLAGS for our program, PYTHON with PyTorch
  decode       generation with LLaMA 3.2 1B in bfloat16, token by token, beside the bandwidth of memory:
               at least 0.8 of what reading the weights allows; DECODE_FLAGS
  profile      the time of each op in a step of GPT-2 124M, 64 x 1024, bfloat16; PROFILE_FLAGS
  soak         10,000 steps of a small model in bfloat16: no growth of memory, no NaN, and resumed
               in the middle the same in every bit; SOAK_STEPS, SOAK_FLAGS for the program
  devices      with two GPUs or more: work on the last one takes no memory on the first
  sanitizer    compute-sanitizer's memcheck, racecheck and initcheck over a part of the suites;
               sanitizer:full for all of them, SANITIZER_TOOLS, SANITIZER_SUITES,
               SANITIZER_SECONDS (240) for one eighth of a suite under one tool
  infini_rt    InfiniRT on the CPU and on NVIDIA: its suite, stress program and benchmarks

Needs nvcc 12.4, a C++20 compiler, CMake 3.25, Ninja, Python 3 (with PyTorch for bench and transformers) and the
packages that `scripts/install_deps.sh --list` prints. On a machine where nothing can be installed,
bring Debian's packages unpacked (apt-get download, dpkg -x) and name the folder:
  CMAKE_PREFIX_PATH=FOLDER/usr LD_LIBRARY_PATH=FOLDER/usr/lib/x86_64-linux-gnu scripts/gpu_check.sh
  --output DIR  folder for logs and results (build/gpu_check)
USAGE
}

all_parts=(build tests conformance training transformers determinism bench decode profile soak devices sanitizer infini_rt)
# The least ratio to PyTorch that passes, the largest ratio of peak memory, and flags of our program.
declare -A bench_cases=(
  [bf16_64]="64x1024:bfloat16:compile:1.15:0.9:--deterministic false"
  [bf16_32]="32x1024:bfloat16:compile:1.15:0.9:--deterministic false"
  [fp32]=8x1024:float32:compile:1.0
  [small]=4x64:bfloat16:eager:6
  [fp8]=64x1024:fp8:compile:1.4
  [llama]="llama3.2-1b/8x1024:bfloat16:compile:1.2:inf:--deterministic false"
  [llama_memory]="llama3.2-1b/8x1024:bfloat16:compile:1.2:0.8:--param_dtype bfloat16 --recompute selective"
  [llama_long]="llama3.2-1b/2x8192:bfloat16:compile:1.5:0.8:--deterministic false --recompute selective"
  [qwen3]=qwen3-0.6b/8x1024:bfloat16:compile:1.2
  [mixtral]=mixtral-1.2b/8x1024:bfloat16:eager:3
)
bench_names="bf16_64 bf16_32 fp32 small fp8 llama llama_memory llama_long qwen3 mixtral"
sanitizer_full=false
output=build/gpu_check
parts=()
while (($#)); do
  case $1 in
    --output) output=${2:?--output needs a folder}; shift ;;
    -h | --help) usage; exit 0 ;;
    bench:*) bench_names=${1#bench:} bench_names=${bench_names//,/ }; parts+=(bench) ;;
    sanitizer:full) sanitizer_full=true; parts+=(sanitizer) ;;
    *)
      [[ " ${all_parts[*]} " == *" $1 "* ]] ||
        { echo "gpu_check.sh: unknown option or part '$1'" >&2; usage >&2; exit 2; }
      parts+=("$1")
      ;;
  esac
  shift
done
for name in $bench_names; do
  [[ -v bench_cases[$name] ]] || { echo "gpu_check.sh: bench: no case '$name'" >&2; usage >&2; exit 2; }
done
((${#parts[@]})) || parts=("${all_parts[@]}")
output=$(realpath -m -- "$output")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command -v nvidia-smi >/dev/null || { echo "gpu_check.sh: no NVIDIA driver: nvidia-smi is missing" >&2; exit 2; }
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
mkdir -p "$output"
jobs=${JOBS:-$(nproc)}
python=${PYTHON:-python3}
infini_train=build/cuda/bin/infini-train
num_gpus=$(nvidia-smi --list-gpus | wc -l)

# logged NAME COMMAND...: the output goes to a file, and its end to the terminal where it fails.
logged() {
  local log=$output/$1.log
  shift
  "$@" >"$log" 2>&1 && return
  tail -n 40 "$log"
  return 1
}

run_build() {
  logged configure cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES="${CUDA_ARCHITECTURES:-native}" \
    -DINFINITRAIN_BUILD_BENCHMARKS=ON || return
  logged build cmake --build --preset cuda --parallel "$jobs" \
    --target infini-train tests_cuda compare_devices benchmark_train_step benchmark_decode -- -k 0 && return
  grep -E -m 40 'error|FAILED' "$output/build.log"
  return 1
}

run_tests() {
  local status=0 device log suites='.*'
  [[ -z ${TEST_SUITES:-} ]] || suites="^cuda\\.(${TEST_SUITES// /|})(\\.|\$)"
  for device in $(printf '%s\n' 0 "$((num_gpus - 1))" | uniq); do
    log=$output/tests_cuda$device.log
    INFINI_TRAIN_TEST_DEVICE_INDEX=$device OMP_NUM_THREADS=2 timeout 240 ctest --preset cuda --label-regex '^cuda$' \
      --tests-regex "$suites" --parallel "$((jobs < 8 ? jobs : 8))" --timeout 200 >"$log" 2>&1 || status=1
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

# The compiler's C++ headers as bytes, which all trainings below read.
prepare_data() {
  local headers
  [[ ! -d $output/data ]] || return 0
  headers=$(LC_ALL=C "${CXX:-c++}" -x c++ -E -v /dev/null 2>&1 | sed -n '/^#include <...> search starts here:$/{n;s/^ *//p}')
  logged tokenize "$infini_train" tokenize --tokenizer bytes --output "$output/data" "$headers"
}

# train NAME MODEL OPTION...: prints the end of the log; the numbers go to train_NAME.jsonl.
train() {
  local name=$1 model=$2
  shift 2
  prepare_data || return
  rm -f "$output/train_$name.jsonl"
  logged "train_$name" "$infini_train" train --model "$model" --input_bin "$output/data/train_*.bin" --seed 1 \
    --metrics_file "$output/train_$name.jsonl" "$@" || return
  echo "-- $name"
  tail -n 2 "$output/train_$name.log"
}

# compare A B OPTION...: the metrics of two runs of `train`.
compare() {
  local a=$1 b=$2
  shift 2
  "$python" scripts/compare_metrics.py same "$output/train_$a.jsonl" "$output/train_$b.jsonl" "$@"
}

run_training() {
  local device flags
  "$infini_train" info --device cuda || return
  for device in cuda cpu; do
    train "nano_$device" gpt2-nano --device "$device" --num_iteration 20 --batch_size 8 --sequence_length 128 || return
    train "gpt2_$device" gpt2 --device "$device" --num_iteration 20 || return
    train "gpt2_bf16_$device" gpt2 --device "$device" --num_iteration 20 --dtype bfloat16 || return
  done
  compare nano_cuda nano_cpu --relative 1e-5 --steps 20 || return
  compare gpt2_cuda gpt2_cpu --relative 1e-5 --steps 20 || return
  compare gpt2_bf16_cuda gpt2_cpu --relative 1e-2 --steps 20 || return
  compare gpt2_bf16_cuda gpt2_bf16_cpu --relative 1e-2 --steps 20 || return
  train nano_bfloat16 gpt2-nano --device cuda --dtype bfloat16 --num_iteration 500 --log_interval 100 \
    --batch_size 8 --sequence_length 128 --learning_rate 1e-3 || return
  # Rows of the head times its vocabulary exceed 2^31.
  read -ra flags <<<"${COMPARE_FLAGS:-}"
  build/cuda/tests/training/compare_devices --device cuda --batch_size 3 --sequence_length 8192 \
    --vocab_size 128256 --steps 2 "${flags[@]}" 2>&1 | tee "$output/compare_devices.log"
}

run_transformers() {
  "$python" benchmarks/compare.py build/cuda/benchmarks/train_step --device cuda --weights "$output/weights" \
    --cases "llama3.2-1b/2x8192:bfloat16:compile:0:inf:--deterministic false --recompute selective" \
    --learning_rate 1e-5 --steps 6 --rounds 1 --timeout 400
}

run_determinism() {
  local run
  for run in first second; do
    train "$run" gpt2 --device cuda --dtype bfloat16 --dropout 0.1 --num_iteration 30 --log_interval 10 \
      --batch_size 8 --sequence_length 512 || return
  done
  compare first second --steps 30
}

run_bench() {
  local name cases=()
  for name in $bench_names; do
    cases+=("${bench_cases[$name]}")
  done
  "$python" benchmarks/compare.py build/cuda/benchmarks/train_step --device cuda --cases "${cases[@]}" \
    --steps "${BENCH_STEPS:-30}" --rounds "${BENCH_ROUNDS:-2}" --timeout 300 --train_step_flags="${BENCH_FLAGS:-}" \
    --markdown "$output/bench.md" --json "$output/bench.json"
}

run_decode() {
  local flags
  read -ra flags <<<"${DECODE_FLAGS:-}"
  logged decode build/cuda/benchmarks/decode --device cuda --model llama3.2-1b "${flags[@]}" || return
  tail -n 1 "$output/decode.log" | tee "$output/decode.json"
  "$python" -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))["of_the_bound"] < 0.8)' "$output/decode.json"
}

run_profile() {
  local flags
  read -ra flags <<<"${PROFILE_FLAGS:-}"
  logged profile build/cuda/benchmarks/train_step --device cuda --dtype bfloat16 --batch_size 64 --sequence_length 1024 \
    --profile "$output/profile" "${flags[@]}" || return
  head -n 60 "$output/profile/profile.txt"
  tail -n 1 "$output/profile.log"
}

# memory_in_use GPU: megabytes, of all programs.
memory_in_use() {
  nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits --id="$1"
}

# watch_memory GPU FILE COMMAND...: runs the command; the file has a line of memory_in_use five times a second.
watch_memory() {
  local gpu=$1 file=$2 watcher status=0
  shift 2
  nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits --id="$gpu" --loop-ms=200 >"$file" &
  watcher=$!
  "$@" || status=$?
  kill "$watcher"
  wait "$watcher" 2>/dev/null || true
  return "$status"
}

run_soak() {
  local steps=${SOAK_STEPS:-10000} half options flags
  half=$((steps / 2))
  options=(--device cuda --dtype bfloat16 --num_iteration "$steps" --log_interval 1000 --batch_size 4
    --sequence_length 64 --learning_rate 1e-3 --dropout 0.1)
  read -ra flags <<<"${SOAK_FLAGS:-}"
  rm -rf "$output/soak"
  watch_memory 0 "$output/soak_memory.txt" train soak gpt2-nano "${options[@]}" "${flags[@]}" \
    --save "$output/soak" --save_interval "$half" || return
  "$python" scripts/compare_metrics.py steady "$output/train_soak.jsonl" --after "$((steps / 10))" || return
  # The first half of the time holds the start of the program.
  awk '{ used[NR] = $1 }
    END {
      for (i = int(NR / 2) + 1; i <= NR; ++i)
        if (i <= 0.75 * NR) { if (used[i] > third) third = used[i] } else if (used[i] > last) last = used[i]
      printf "memory in use on the GPU: %d MiB in the third quarter of the time, %d MiB in the last\n", third, last
      exit !(NR >= 4 && last <= third)
    }' "$output/soak_memory.txt" || return
  train soak_resumed gpt2-nano "${options[@]}" "${flags[@]}" \
    --load "$output/soak/checkpoint_step_$(printf %06d "$half")" || return
  compare soak soak_resumed --steps "$((steps - half))"
}

run_devices() {
  local last=$((num_gpus - 1)) before most
  if ((num_gpus < 2)); then
    echo "one GPU: nothing to check"
    return
  fi
  before=$(memory_in_use 0)
  watch_memory 0 "$output/devices_memory.txt" train last_gpu gpt2 --device "cuda:$last" --dtype bfloat16 \
    --num_iteration 30 --batch_size 8 --sequence_length 512 || return
  most=$(sort -n "$output/devices_memory.txt" | tail -n 1)
  echo "memory in use on cuda:0 while cuda:$last trained: $most MiB, $before MiB before"
  # A context alone takes hundreds of megabytes.
  ((most - before < 32))
}

# sanitize TOOL SUITE FILTER SHARD: one eighth of a suite's tests.
sanitize() {
  local tool=$1 suite=$2 filter=$3 log=$output/sanitizer/$1_$2_$4.log status=0
  local options=(--tool "$tool" --error-exitcode 99 --print-limit 20)
  case $tool in
    # Calls that the suites let fail on purpose are no findings.
    memcheck) options+=(--report-api-errors no) ;;
    # Shared memory of the libraries' kernels is the libraries' affair.
    racecheck) options+=(--kernel-name kernel_substring=infini_train) ;;
  esac
  GTEST_TOTAL_SHARDS=8 GTEST_SHARD_INDEX=$4 OMP_NUM_THREADS=1 timeout "${SANITIZER_SECONDS:-240}" \
    compute-sanitizer "${options[@]}" "build/cuda/tests/test_${suite}_cuda" --gtest_filter="$filter" \
    --gtest_brief=1 >"$log" 2>&1 || status=$?
  case $status in
    0) echo "clean" ;;
    99) echo "errors" ;;
    124) echo "unfinished" ;;
    *) echo "failed ($status)" ;;
  esac >"$log.status"
}

run_sanitizer() {
  local tool suite filter status=0 shard found
  # Long rows and many elements tell a sanitizer nothing that short ones do not, at a hundred times the price.
  filter='-*More*:*Many*:*Large*:*Long*:*Thousand*:*SixtyFour*:*Vocabular*:*Threads*:*EveryTypeAndLayout*'
  local suites=${SANITIZER_SUITES:-runtime tensor autograd training}
  if $sanitizer_full; then
    filter='-*MoreThanThereIs*:*MoreElementsThan32Bits*'
    suites=${SANITIZER_SUITES:-runtime tensor autograd optim nn training ladder}
  fi
  # Of the memory in use on the GPU, which eight programs share here.
  filter+=':*PiecesComeAndGo*:*FiguresAreTheDrivers*'
  command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is missing; it comes with the CUDA toolkit"; return 1; }
  rm -rf "$output/sanitizer"
  mkdir -p "$output/sanitizer"
  for tool in ${SANITIZER_TOOLS:-memcheck racecheck initcheck}; do
    local tool_suites=$suites tool_filter=$filter
    if [[ $tool == racecheck ]]; then
      # It breaks down in kernels of cuBLASLt and cuDNN; the suite tensor calls all kernels of ours.
      tool_suites=tensor
      tool_filter+=':*Gemm*:*Fp8*:*Linear*:*Attention*:*Matmul*:*Expert*'
    elif [[ $tool == initcheck ]]; then
      # It does not see what kernels of cuBLASLt store by bulk copies, so that all who read that look wrong;
      # cuDNN's read memory of their own that nobody wrote.
      tool_suites="runtime tensor"
      tool_filter+=':*Attention*:*LinearCrossEntropy*'
    fi
    for suite in $tool_suites; do
      for shard in {0..7}; do
        sanitize "$tool" "$suite" "$tool_filter" "$shard" &
      done
      wait
      found=$(cat "$output/sanitizer/${tool}_${suite}"_*.status | sort | uniq -c | awk '{ $1 = $1 " x"; print }' | paste -sd ,)
      echo "$tool $suite: $found"
      [[ $found == "8 x clean" ]] || status=1
      grep -hE -m 3 '^(=+ +(Invalid|Error|Potential|Race|Uninitialized|Program hit)|\[  FAILED)' \
        "$output/sanitizer/${tool}_${suite}"_*.log | sort | uniq -c | sort -rn | head -n 8 || true
    done
  done
  return "$status"
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
