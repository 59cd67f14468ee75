#!/usr/bin/env bash
# From a fresh clone to generated text: installs, builds, and trains a small GPT-2 on the C++ headers
# that came with the compiler.
set -euo pipefail

usage() {
  cat <<'END'
Usage: scripts/quickstart.sh [--no-install]

Installs missing packages, builds the release preset, tokenizes the compiler's C++ headers byte by
byte, trains gpt2-nano on them for at most five minutes on two cores, and generates a sample.
Everything it makes is in build/release and runs/quickstart; running it again starts over.
  --no-install  do not look for missing packages
END
}

install=true
while (($#)); do
  case $1 in
    --no-install) install=false ;;
    -h | --help) usage; exit 0 ;;
    *) echo "quickstart.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
say() { printf '\n== %s\n' "$*"; }

say "1/5 Packages"
if $install; then
  scripts/install_deps.sh --build
fi

say "2/5 Build (build/release)"
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
fi
cmake --preset release --log-level=WARNING
cmake --build --preset release
infini_train=build/release/bin/infini-train

run=runs/quickstart
rm -rf "$run"
mkdir -p "$run"

# The first folder that the compiler searches for <...> is that of the standard library.
headers=$(LC_ALL=C "${CXX:-c++}" -x c++ -E -v /dev/null 2>&1 | sed -n '/^#include <...> search starts here:$/{n;s/^ *//p}')
say "3/5 Tokenize $headers"
"$infini_train" tokenize --tokenizer bytes --output "$run/data" "$headers"

say "4/5 Train gpt2-nano, at most five minutes"
"$infini_train" train --model gpt2-nano \
  --input_bin "$run/data/train_*.bin" --input_val_bin "$run/data/val_*.bin" \
  --batch_size 8 --sequence_length 128 --num_iteration 0 --max_train_minutes 5 \
  --learning_rate 3e-3 --lr_decay_style cosine --lr_warmup_iters 50 --min_lr 1e-4 \
  --log_interval 100 --val_loss_every 200 --num_threads 2 --save "$run/model"

say "5/5 Generate"
"$infini_train" generate --model "$run/model" --prompt "template <typename T>" --temperature 0.8
echo
echo "Go on with: $infini_train generate --model $run/model --prompt 'class '"
