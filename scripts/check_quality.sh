#!/usr/bin/env bash
# Formatting and static checks. Their scope is documented in docs/code_quality.md.
set -euo pipefail

usage() {
  cat <<'END'
Usage: scripts/check_quality.sh [CHECK...] [--fix] [--since REVISION] [-- FILE...]

Checks: format (clang-format), python (ruff), tidy (clang-tidy), iwyu (include-what-you-use); all of
them if none is named. They need what scripts/install_deps.sh --lint installs, and tidy and iwyu also
the packages of --build and --test.
  --fix             mend what the tool can mend
  --since REVISION  only files that differ from REVISION, or are new
  -- FILE...        only these files
END
}

checks=()
fix=false
since=
only=()
while (($#)); do
  case $1 in
    format | python | tidy | iwyu) checks+=("$1") ;;
    --fix) fix=true ;;
    --since)
      (($# > 1)) || { echo "check_quality.sh: --since needs a revision" >&2; exit 2; }
      since=$2
      shift
      ;;
    --) shift; only=("$@"); break ;;
    -h | --help) usage; exit 0 ;;
    *) echo "check_quality.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
((${#checks[@]})) || checks=(format python tidy iwyu)

# Formatters disagree between versions, and older tidies do not know C++20: one version counts.
clang_format=clang-format-14
clang_tidy=clang-tidy-16
ruff=build/lint/bin/ruff
build=build/cpu

# Paths of -- are the caller's, all others the repository's.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
for i in "${!only[@]}"; do
  only[i]=$(realpath --relative-to="$root" -- "${only[i]}")
done
cd "$root"

need() {
  command -v "$1" >/dev/null && return
  echo "check_quality.sh: $1 is missing; run scripts/install_deps.sh --lint" >&2
  exit 1
}

# files <extension>...: the files of these types that are to be checked.
files() {
  local pathspecs=("${@/#/*.}")
  if ((${#only[@]})); then
    printf '%s\n' "${only[@]}" | grep -E "\.($(IFS='|' && echo "$*"))\$" || true
  elif [[ -n $since ]]; then
    { git diff --name-only --diff-filter=d "$since" -- "${pathspecs[@]}"
      git ls-files --others --exclude-standard -- "${pathspecs[@]}"; } | sort -u
  else
    git ls-files --cached --others --exclude-standard --deduplicate -- "${pathspecs[@]}" |
      while read -r file; do [[ ! -e $file ]] || echo "$file"; done
  fi
}

# compiled_files: those sources that the compilation database of the cpu preset knows. Device code
# needs its vendor's compiler.
compiled_files() {
  [[ -e $build/compile_commands.json ]] || cmake --preset cpu --log-level=WARNING >/dev/null
  files cc | while read -r file; do
    ! grep -qF "\"file\": \"$root/$file\"" "$build/compile_commands.json" || echo "$file"
  done
}

# The OpenMP header is the GCC one that the build uses: after all folders, so that nothing else of
# GCC's own headers is seen.
clang_args=(-idirafter "$(g++ -print-file-name=include 2>/dev/null || true)")

check_format() {
  need "$clang_format"
  local mode=(--dry-run -Werror)
  ! $fix || mode=(-i)
  files h hpp cc cpp cu cuh simt maca | xargs -r -d '\n' "$clang_format" --style=file "${mode[@]}"
}

check_python() {
  need "$ruff"
  local sources lint=(check --quiet) layout=(format --quiet --check --diff)
  mapfile -t sources < <(files py)
  ((${#sources[@]})) || return 0
  ! $fix || { lint+=(--fix); layout=(format --quiet); }
  "$ruff" "${lint[@]}" "${sources[@]}" && "$ruff" "${layout[@]}" "${sources[@]}"
}

check_tidy() {
  need "$clang_tidy"
  local options=(-p "$build" --quiet "${clang_args[@]/#/--extra-arg=}") jobs
  jobs=$(nproc)
  # Fixes to one header must not be written twice at once.
  ! $fix || { options+=(--fix); jobs=1; }
  compiled_files | xargs -r -d '\n' -P "$jobs" -n 1 "$clang_tidy" "${options[@]}"
}

# Of include-what-you-use's advice, the part that counts: what can go, and headers of the project and
# of its libraries that a file uses without including them. Which header of the standard library a
# name is from depends on the library: <ext/alloc_traits.h> is no advice to follow.
iwyu_verdict() {
  awk '/ should add these lines:$/ { adding = 1 }
       / should remove these lines:$/ { adding = 0 }
       /^- #include <cstddef>/ { next }
       !(adding && /^#include <[^\/.]*>|^#include <(bits|ext|sys|linux|asm)\/|^#include <[^\/]*\.h>/)'
}

check_iwyu() {
  need iwyu_tool
  local sources verdict
  mapfile -t sources < <(compiled_files)
  ((${#sources[@]})) || return 0
  verdict=$(iwyu_tool -p "$build" -j "$(nproc)" "${sources[@]}" -- "${clang_args[@]}" \
    -Xiwyu --mapping_file="$root/scripts/iwyu.imp" -Xiwyu --no_fwd_decls -Xiwyu --cxx17ns \
    -Xiwyu --quoted_includes_first 2>&1 | iwyu_verdict)
  if grep 'error:' <<<"$verdict"; then
    return 1
  fi
  if $fix; then
    fix_include --nosafe_headers --nocomments --noreorder <<<"$verdict" || true
    return 0
  fi
  awk '/ should (add|remove) these lines:$/ { file = $1; wanted = $3; next }
       /^The full include-list/ { file = "" }
       file && /#include/ { sub(/^- /, ""); sub(/ *\/\/.*/, ""); print file ": " wanted " " $0; found = 1 }
       END { exit found }' <<<"$verdict"
}

failed=()
for check in "${checks[@]}"; do
  echo "Checking: $check"
  "check_$check" || failed+=("$check")
done
if ((${#failed[@]})); then
  echo "check_quality.sh: failed: ${failed[*]}" >&2
  exit 1
fi
