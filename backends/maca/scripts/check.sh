#!/usr/bin/env bash
# Builds the provider maca over a stand-in for its SDK, or over an SDK, and shows what it promises.
set -euo pipefail

usage() {
  cat <<'END'
Usage: backends/maca/scripts/check.sh [--body sim|cuda | --sdk DIR] [--cmake OPTION]... [--output DIR]
           [--against PROGRAM] [PART...] [-- CTEST-OPTION...]

Builds over a stand-in SDK (--body, by default sim) or over the SDK in DIR, in build/maca_<body>. Parts, the
first two if none is named; those behind the first need what it made, now or earlier:
  build        the stand-in, infini-train and the tests labelled maca, JOBS at a time; build:TARGET,... for
               other targets (build:infini-train,test_tensor_maca)
  tests        the tests labelled maca, TEST_JOBS at a time (by default one for each processor, and 4 on a
               GPU, where launches that block wait for those of the others); options behind -- go to ctest;
               tests:REGEX for those whose names match (tests:'autograd|mutations|parallel')
  conformance  every op against float64 on the CPU
  training     20 steps of GPT-2 124M in float32, with and without sums in float64, and in bfloat16, whose
               losses must be those of PROGRAM
  speed        steps of GPT-2 124M in bfloat16 without the workarounds, beside PROGRAM's in turn: SPEED_CASES
               ("64x1024:0.6", a list of BATCHxSEQUENCE[:LEAST-RATIO]), SPEED_ROUNDS (2), SPEED_STEPS (30)
  profile      the time of each op in such a step, and in PROGRAM's
  embedding    a project that has all of it as a part of itself is built and run: as much work as `build`
PROGRAM is infini-train of another provider, AGAINST_DEVICE (cuda) the device that it trains on. DIR is a folder
for logs and results (<build>/check). What each part found is repeated at the end. An NVIDIA GPU and no
network: see scripts/gpu_check.sh.
END
}
fail() {
  printf 'check.sh: %s\n' "$1" >&2
  exit 2
}

cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
all_parts=(build tests conformance training speed profile embedding)
body=sim sdk="" against="" output="" options=() parts=() ctest_options=()
build_targets="infini-train tests_maca" test_names=""
while (($#)); do
  case "$1" in
    -h | --help) usage && exit ;;
    --body) body=${2:?--body: sim or cuda} && shift ;;
    --sdk) sdk=${2:?--sdk needs a folder} && body=sdk && shift ;;
    --cmake) options+=("${2:?--cmake needs an option}") && shift ;;
    --against) against=${2:?--against needs a program} && shift ;;
    --output) output=${2:?--output needs a folder} && shift ;;
    --) shift && ctest_options=("$@") && break ;;
    build:?*) build_targets=${1#build:} && build_targets=${build_targets//,/ } && parts+=(build) ;;
    tests:?*) test_names=${1#tests:} && parts+=(tests) ;;
    *)
      [[ " ${all_parts[*]} " == *" $1 "* ]] || { usage >&2 && fail "unknown option or part '$1'"; }
      parts+=("$1")
      ;;
  esac
  shift
done
((${#parts[@]})) || parts=(build tests)
build=build/maca_$body
output=$(realpath -m -- "${output:-$build/check}")
infini_train=$build/bin/infini-train
steps=${SPEED_STEPS:-30}
standin=""
if [[ -z $sdk ]]; then
  standin=1 sdk=$PWD/build/maca_standin_$body
fi
mkdir -p "$output"
found=$output/found.txt

# say TEXT: a result, which the end repeats.
say() {
  printf '%s\n' "$1" | tee -a "$found"
}

# configure OPTION...: calls CMake with the SDK and with the options of the command line.
configure() {
  local of_standin=()
  if [[ -n $standin ]]; then
    # The stand-in's compiler uses ccache by itself.
    unset CMAKE_CXX_COMPILER_LAUNCHER
    # Over CUDA there is no MCCL without NCCL.
    [[ -e $sdk/lib/libmccl.so ]] || of_standin=(-DINFINITRAIN_MACA_WITH_MCCL=OFF)
  fi
  cmake "$@" -DMACA_PATH="$sdk" --log-level=WARNING "${of_standin[@]}" "${options[@]}"
}

run_build() {
  [[ -z $standin ]] || backends/maca/standin/build.sh --body "$body" --output "$sdk"
  configure --preset maca -B "$build"
  # shellcheck disable=SC2086  # Several targets.
  cmake --build "$build" ${JOBS:+--parallel "$JOBS"} --target $build_targets
}

run_tests() {
  local jobs status=0 log=$output/tests.log
  jobs=$(nproc)
  [[ $body == sim ]] || jobs=4
  OMP_WAIT_POLICY=passive ctest --test-dir "$build" --output-on-failure --no-tests=error \
    --parallel "${TEST_JOBS:-$jobs}" --label-regex '^maca$' ${test_names:+--tests-regex "$test_names"} \
    "${ctest_options[@]}" | tee "$log" || status=1
  say "$(grep -E 'tests passed' "$log" || echo 'no result')"
  sed -n '/^The following tests FAILED/,/^Errors while/{/^[[:space:]]*[0-9]/p;}' "$log" | while read -r name; do
    say "$name"
  done
  return "$status"
}

run_conformance() {
  local status=0
  "$infini_train" conformance --device maca --nobenchmark --output_dir "$output/conformance" \
    >"$output/conformance.log" 2>&1 || status=1
  ((status == 0)) || tail -n 20 "$output/conformance.log"
  say "$(grep -E '[0-9]+ native' "$output/conformance.log" || echo 'no result')"
  return "$status"
}

# train NAME PROGRAM DEVICE OPTION...: the numbers of GPT-2's steps go to NAME.jsonl, the rest to NAME.log.
train() {
  local name=$1 program=$2 device=$3
  shift 3
  [[ -d $output/data ]] || "$infini_train" tokenize --tokenizer bytes --output "$output/data" infini_train \
    >"$output/tokenize.log" || return
  rm -f "$output/$name.jsonl"
  "$program" train --device "$device" --model gpt2 --input_bin "$output/data/train_*.bin" --seed 1 \
    --metrics_file "$output/$name.jsonl" "$@" >"$output/$name.log" 2>&1 && return
  tail -n 20 "$output/$name.log" >&2
  return 1
}

# same A B TOLERANCE: whether the losses of two runs are the same.
same() {
  local status=0 text
  text=$(python3 scripts/compare_metrics.py same "$output/$1.jsonl" "$output/$2.jsonl" --relative "$3" --steps 20 2>&1) ||
    status=1
  say "$(printf '%-24s %s' "$1:" "$text")"
  return "$status"
}

needs_program() {
  [[ -n $against ]] || fail "$1 needs a program to compare with: --against build/cuda/bin/infini-train, say"
}

run_training() {
  local status=0 device=${AGAINST_DEVICE:-cuda} options=(--num_iteration 20)
  needs_program training
  train theirs "$against" "$device" "${options[@]}" || return
  train theirs_bf16 "$against" "$device" "${options[@]}" --dtype bfloat16 || return
  train float32 "$infini_train" maca "${options[@]}" || return
  INFINI_MACA_GEMM_FP64_ACCUM=1 train float32_in_float64 "$infini_train" maca "${options[@]}" || return
  train float32_no_workarounds "$infini_train" maca "${options[@]}" --nomaca_multithread_workarounds || return
  train bfloat16 "$infini_train" maca "${options[@]}" --dtype bfloat16 || return
  same float32 theirs 1e-5 || status=1
  same float32_in_float64 theirs 1e-5 || status=1
  same float32_no_workarounds theirs 1e-5 || status=1
  same bfloat16 theirs_bf16 1e-2 || status=1
  return "$status"
}

# step_options BATCHxSEQUENCE
step_options() {
  echo --dtype bfloat16 --batch_size "${1%x*}" --sequence_length "${1#*x}"
}

run_speed() {
  local status=0 entry shape round options files text
  needs_program speed
  for entry in ${SPEED_CASES:-64x1024:0.6}; do
    shape=${entry%%:*}
    read -ra options <<<"$(step_options "$shape") --num_iteration $steps --log_interval 0"
    files=()
    for ((round = 1; round <= ${SPEED_ROUNDS:-2}; ++round)); do
      train "theirs_${shape}_$round" "$against" "${AGAINST_DEVICE:-cuda}" "${options[@]}" || return
      train "ours_${shape}_$round" "$infini_train" maca "${options[@]}" --nomaca_multithread_workarounds || return
      files+=("$output/ours_${shape}_$round.jsonl" "$output/theirs_${shape}_$round.jsonl")
    done
    [[ $entry != *:* ]] || files+=(--at_least "${entry#*:}")
    text=$(python3 scripts/compare_metrics.py speed "${files[@]}" --after $((steps / 3)) 2>&1) || status=1
    say "$shape: ${text//$'\n'/; }"
  done
  return "$status"
}

run_profile() {
  local options shape=${SPEED_CASES:-64x1024}
  shape=${shape%% *}
  read -ra options <<<"$(step_options "${shape%%:*}") --num_iteration 8 --profile_steps 6:8"
  train profile_ours "$infini_train" maca "${options[@]}" --nomaca_multithread_workarounds \
    --profile "$output/profile_ours" || return
  head -n 40 "$output/profile_ours/profile.txt"
  [[ -z $against ]] && return
  train profile_theirs "$against" "${AGAINST_DEVICE:-cuda}" "${options[@]}" --profile "$output/profile_theirs" || return
  head -n 40 "$output/profile_theirs/profile.txt"
}

run_embedding() {
  configure -S tests/backends/maca/embedding -B "$build/embedding" -G Ninja -DCMAKE_BUILD_TYPE=Release -DREPOSITORY="$PWD"
  cmake --build "$build/embedding" ${JOBS:+--parallel "$JOBS"} --target program
  "$build/embedding/program"
}

failed=() summary=()
for part in "${parts[@]}"; do
  ((${#parts[@]} == 1)) || printf '\n== %s\n' "$part"
  start=$SECONDS
  : >"$found"
  # In a shell of its own, which the first failure ends.
  set +e
  (set -e && "run_$part")
  status=$?
  set -e
  verdict=passed
  ((status == 0)) || { verdict=FAILED && failed+=("$part"); }
  summary+=("$(printf '%s: %s, %d s' "$part" "$verdict" $((SECONDS - start)))")
  echo "${summary[-1]}"
  while read -r line; do
    summary+=("  $line")
  done <"$found"
  [[ $part != build || $status == 0 ]] || break
done
printf '\n== summary\n'
printf '%s\n' "${summary[@]}"
if ((${#failed[@]})); then
  echo "Failed: ${failed[*]}. Logs: $output" >&2
  exit 1
fi
