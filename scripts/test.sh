#!/usr/bin/env bash
# Builds InfiniTrain and runs its tests.
set -euo pipefail

usage() {
  cat <<'END'
Usage: scripts/test.sh [--preset NAME] [--no-install] [CTEST-OPTION...]

Installs missing packages, builds a preset (default: cpu) and runs its tests. All other options go
to ctest: -R REGEX runs the tests whose names match, -L REGEX those of a room, -j N as many at once.
  --preset NAME  cpu, sim, debug, asan, sim-asan or tsan
  --no-install   do not look for missing packages
END
}

preset=cpu
install=true
ctest_options=()
while (($#)); do
  case $1 in
    --preset)
      (($# > 1)) || { echo "test.sh: --preset needs a name" >&2; exit 2; }
      preset=$2
      shift
      ;;
    --preset=*) preset=${1#*=} ;;
    --no-install) install=false ;;
    -h | --help) usage; exit 0 ;;
    *) ctest_options+=("$1") ;;
  esac
  shift
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
if $install; then
  scripts/install_deps.sh --build --test
fi
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
fi

echo "Configuring and building build/$preset"
cmake --preset "$preset" --log-level=WARNING
cmake --build --preset "$preset"
echo "Running the tests of build/$preset"
ctest --preset "$preset" --parallel "$(nproc)" ${ctest_options[@]+"${ctest_options[@]}"}
