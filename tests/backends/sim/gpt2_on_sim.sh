#!/usr/bin/env bash
# The program gpt2 trains on sim, with no op on the CPU: gpt2_on_sim.sh INFINI_TRAIN GPT2 TEXT FOLDER
set -euo pipefail
infini_train=$1 gpt2=$2 text=$3 folder=$4

rm -rf "$folder"
"$infini_train" tokenize --tokenizer bytes --output "$folder" "$text"
INFINI_TRAIN_FALLBACK=error "$gpt2" --model gpt2-nano --device sim --input_bin "$folder/train_*.bin" \
  --num_iteration 2 --batch_size 1 --sequence_length 32
