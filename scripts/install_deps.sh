#!/usr/bin/env bash
# Installs what this project needs from the packages of Debian 12 or Ubuntu 24.04, and what they lack from
# PyPI.
set -euo pipefail

usage() {
  cat <<'END'
Usage: scripts/install_deps.sh [--build] [--test] [--lint] [--clang] [--list]

Installs the packages that are missing; does nothing, and needs no rights, if none is.
  --build  compiler and libraries to build InfiniTrain
  --test   what the test suites and benchmarks need besides
  --lint   formatters and static checks (scripts/check_quality.sh)
  --clang  Clang, to build with it instead of GCC
  --list   only print the distribution's packages
Without a group: --build --test.
END
}

# The one list of dependencies. Both distributions have all of these names.
build_packages=(
  git g++ cmake ninja-build python3
  libdnnl-dev             # GEMM and its friends on the CPU
  libfmt-dev              # text formatting
  libcli11-dev            # command lines
  nlohmann-json3-dev      # configurations, tokenizers, safetensors headers
  libpcre2-dev            # splitting text before tokenization
  libboost-context-dev    # fibers of the emulated accelerator
)
test_packages=(
  libgtest-dev libgmock-dev libbenchmark-dev
  ccache                  # builds of several presets compile once what they share
)
lint_packages=(clang-format-14 clang-tidy-16 iwyu python3-venv)
clang_packages=(clang-16 libclang-rt-16-dev libomp-16-dev)

# Of PyPI, for Python, into an environment of this checkout's own.
lint_tools=(ruff==0.17.6)
tools_environment=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/lint

packages=()
tools=()
list=false
while (($#)); do
  case $1 in
    --build) packages+=("${build_packages[@]}") ;;
    --test) packages+=("${test_packages[@]}") ;;
    --lint)
      packages+=("${lint_packages[@]}")
      tools+=("${lint_tools[@]}")
      ;;
    --clang) packages+=("${clang_packages[@]}") ;;
    --list) list=true ;;
    -h | --help) usage; exit 0 ;;
    *) echo "install_deps.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
((${#packages[@]})) || packages=("${build_packages[@]}" "${test_packages[@]}")

if $list; then
  printf '%s\n' "${packages[@]}"
  exit
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_deps.sh: expected Debian 12 or Ubuntu 24.04, found no dpkg and apt-get." >&2
  echo "Install the equivalents of: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done

as_root=()
apt_get() {
  ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 \
    -o Dpkg::Use-Pty=0 "$@"
}
if ((${#missing[@]})); then
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      echo "install_deps.sh: run as root or install sudo; missing packages: ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  echo "Dependencies: installing ${missing[*]}"
  apt_get update
  apt_get install --yes --no-install-recommends "${missing[@]}" >/dev/null
fi

if ((${#tools[@]})); then
  installed=$("$tools_environment/bin/python" -m pip freeze --disable-pip-version-check 2>/dev/null || true)
  for tool in "${tools[@]}"; do
    grep -qxF "$tool" <<<"$installed" || missing+=("$tool")
  done
  if [[ " ${missing[*]} " == *==* ]]; then
    echo "Dependencies: installing ${tools[*]} into $tools_environment"
    python3 -m venv --clear "$tools_environment"
    "$tools_environment/bin/python" -m pip install --quiet --disable-pip-version-check "${tools[@]}"
  fi
fi

if ((${#missing[@]})); then
  echo "Dependencies: installed."
else
  echo "Dependencies: all ${#packages[@]} packages are installed."
fi
