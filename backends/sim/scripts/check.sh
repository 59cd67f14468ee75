#!/usr/bin/env bash
# Builds sim and runs its suites: as they are, and with device memory closed to the host.
set -euo pipefail

usage() {
  cat <<'END'
Usage: backends/sim/scripts/check.sh [CTEST-OPTION...]

Builds the preset sim and runs the tests labelled sim, once as they are and once with
INFINITRAIN_SIM_CHECK=memory. Options go to ctest: -R REGEX runs the tests whose names match.
END
}
if [[ ${1-} == -h || ${1-} == --help ]]; then
  usage
  exit
fi

cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
cmake --preset sim --log-level=WARNING
cmake --build --preset sim --target tests_sim
for check in "" memory; do
  echo "Tests with INFINITRAIN_SIM_CHECK=$check"
  INFINITRAIN_SIM_CHECK=$check ctest --preset sim --parallel "$(nproc)" --label-regex '^sim$' "$@"
done
