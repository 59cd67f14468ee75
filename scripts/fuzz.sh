#!/usr/bin/env bash
# Fuzzes the readers of untrusted files.
set -euo pipefail

usage() {
  cat <<'END'
Usage: scripts/fuzz.sh [--seconds N] [--no-install] [TARGET...]

Builds the fuzz targets of tests/fuzz with Clang and its sanitizers, and runs each for N seconds
(default: 60) from its seed corpus, as many at a time as there are cores; what they print is in
build/fuzz/logs. Inputs that fail are in build/fuzz/failures; give one to
build/fuzz/tests/fuzz/fuzz_TARGET to see it again, and put it into tests/fuzz/regressions/TARGET.
  TARGET  such as token_shard; all of them if none is named
END
}

seconds=60
install=true
targets=()
while (($#)); do
  case $1 in
    --seconds)
      (($# > 1)) || { echo "fuzz.sh: --seconds needs a number" >&2; exit 2; }
      seconds=$2
      shift
      ;;
    --no-install) install=false ;;
    -h | --help) usage; exit 0 ;;
    -*) echo "fuzz.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
    *) targets+=("$1") ;;
  esac
  shift
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
if $install; then
  scripts/install_deps.sh --build --test --clang
fi
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
fi
cmake --preset fuzz --log-level=WARNING
cmake --build --preset fuzz --target fuzzers

programs=build/fuzz/tests/fuzz
if ((${#targets[@]} == 0)); then
  for program in "$programs"/fuzz_*; do
    [[ ! -f $program ]] || targets+=("${program##*/fuzz_}")
  done
fi
python3 tests/fuzz/make_corpus.py build/fuzz/seeds
mkdir -p build/fuzz/failures

export ASAN_OPTIONS=${ASAN_OPTIONS-detect_stack_use_after_return=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS-print_stacktrace=1}
# fuzz <target>: what is found goes to the first folder and is kept for the next run.
fuzz() {
  local corpora=("build/fuzz/corpus/$1" "build/fuzz/seeds/$1")
  [[ ! -d tests/fuzz/regressions/$1 ]] || corpora+=("tests/fuzz/regressions/$1")
  mkdir -p "${corpora[0]}"
  "$programs/fuzz_$1" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3072 -max_len=65536 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix="build/fuzz/failures/$1-" "${corpora[@]}" \
    >"build/fuzz/logs/$1.log" 2>&1
}

# As many at a time as there are cores.
mkdir -p build/fuzz/logs
declare -A processes
for target in "${targets[@]}"; do
  while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n || true; done
  echo "Fuzzing $target for $seconds s"
  fuzz "$target" &
  processes[$target]=$!
done
failed=()
for target in "${targets[@]}"; do
  if wait "${processes[$target]}"; then
    grep 'number_of_executed_units' "build/fuzz/logs/$target.log" | sed "s/^stat::/$target: /"
  else
    failed+=("$target")
    cat "build/fuzz/logs/$target.log"
  fi
done
if ((${#failed[@]})); then
  echo "fuzz.sh: failed: ${failed[*]}; see build/fuzz/failures" >&2
  exit 1
fi
