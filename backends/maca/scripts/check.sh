#!/usr/bin/env bash
# Builds the provider maca over a stand-in for its SDK, or over an SDK, and runs its suites.
set -euo pipefail

usage() {
  cat <<'END'
Usage: backends/maca/scripts/check.sh [--body sim|cuda | --sdk DIR] [--cmake OPTION]... [CTEST-OPTION...]

Builds a stand-in SDK (--body, by default sim) or takes the SDK in DIR, configures the preset maca with it
in build/maca_<body>, builds the tests labelled maca and runs them. Options go to ctest: -R REGEX runs the
tests whose names match.
END
}

cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
body=sim sdk="" options=()
while (($#)); do
  case "$1" in
    -h | --help) usage && exit ;;
    --body) body=$2 && shift 2 ;;
    --sdk) sdk=$2 && body=sdk && shift 2 ;;
    --cmake) options+=("$2") && shift 2 ;;
    *) break ;;
  esac
done
if [[ -z $sdk ]]; then
  sdk=$PWD/build/maca_standin_$body
  backends/maca/standin/build.sh --body "$body" --output "$sdk"
  # The stand-in's compiler uses ccache by itself.
  unset CMAKE_CXX_COMPILER_LAUNCHER
fi
build=build/maca_$body
cmake --preset maca -B "$build" -DMACA_PATH="$sdk" --log-level=WARNING "${options[@]}"
cmake --build "$build" --target tests_maca
OMP_WAIT_POLICY=passive ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$(nproc)" \
  --label-regex '^maca$' "$@"
