#!/usr/bin/env bash
# GPT-2 trains on maca as on the CPU, with no op on the CPU: train_on_maca.sh INFINI_TRAIN TEXT FOLDER
set -euo pipefail
infini_train=$1 text=$2 folder=$3

rm -rf "$folder"
"$infini_train" tokenize --tokenizer bytes --output "$folder" "$text" >/dev/null

# losses DEVICE FLAG...: the losses of 20 steps, to all digits.
losses() {
  local device=$1
  shift
  rm -f "$folder/metrics.jsonl"
  "$infini_train" train --model gpt2-nano --device "$device" --input_bin "$folder/train_*.bin" --num_iteration 20 \
    --batch_size 1 --sequence_length 32 --metrics_file "$folder/metrics.jsonl" "$@" >/dev/null
  cp "$folder/metrics.jsonl" "$folder/$device.jsonl"
}

# compare TOLERANCE: the losses of both devices, relatively.
compare() {
  python3 - "$folder" "$1" <<'END'
import json, pathlib, sys

folder, tolerance = pathlib.Path(sys.argv[1]), float(sys.argv[2])


def losses(device):
    records = map(json.loads, (folder / f"{device}.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if "loss" in record]


expected, found = losses("cpu"), losses("maca")
assert len(expected) == len(found) == 20, (len(expected), len(found))
worst = max(abs(f - e) / abs(e) for e, f in zip(expected, found))
print(f"the losses of 20 steps differ by {worst:.1e} at most, relatively; {tolerance:.0e} is allowed")
sys.exit(worst > tolerance)
END
}

export INFINI_TRAIN_FALLBACK=error
losses cpu
losses maca
compare 1e-5
INFINI_MACA_GEMM_FP64_ACCUM=1 losses maca
compare 1e-5
losses maca --nomaca_multithread_workarounds
compare 1e-5
losses cpu --dtype bfloat16
losses maca --dtype bfloat16
compare 1e-2
# Two ranks on threads, whose gradients MCCL sums; each has a device of its own.
export INFINI_RT_CPU_DEVICES=2  # of the stand-in over the emulator
if [[ ${MCCL-1} == 1 && $("$infini_train" info) == *"device maca:1:"* ]]; then
  losses cpu --nthread_per_process 2
  losses maca --nthread_per_process 2
  compare 1e-5
fi
[[ $("$infini_train" info --device maca) == *"maca_multithread_workarounds = true (default)"* ]]
[[ $("$infini_train" info --device maca --nomaca_multithread_workarounds) == \
  *"maca_multithread_workarounds = false (flag)"* ]]
