#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy: lint.sh [--all | FILE..]. Without arguments it checks the C++ files
# that differ from the last commit. If none differ, it checks the files changed by the last commit. Needs a configured
# build/ (scripts/build.sh) and clang-tidy 16 or newer. Exit code 1 if there are findings.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
  echo "lint.sh: $*" >&2
  exit 3
}

tidy=
for version in "" -{25..16}; do
  command -v "clang-tidy$version" >/dev/null || continue
  major=$("clang-tidy$version" --version | sed -n 's/.*LLVM version \([0-9]*\).*/\1/p')
  # Older versions cannot use std::source_location.
  ((major >= 16)) && tidy=clang-tidy$version && break
done
[[ $tidy ]] || die "clang-tidy 16 or newer is missing: apt-get install clang-tidy-19"
[[ -e build/compile_commands.json ]] || die "build/compile_commands.json is missing: run scripts/build.sh first"

case ${1-} in
  --all) mapfile -t files < <(git ls-files 'src/*.cpp') ;;
  -*) echo "lint.sh: unknown option $1; allowed: --all" >&2 && exit 2 ;;
  "")
    mapfile -t files < <(git diff --name-only --diff-filter=d HEAD -- 'src/*.cpp')
    ((${#files[@]})) || mapfile -t files < <(git diff --name-only --diff-filter=d HEAD~1 -- 'src/*.cpp')
    ;;
  *) files=("$@") ;;
esac
((${#files[@]})) || { echo "lint.sh: no C++ files have changed" && exit 0; }

# compile_commands.json has GCC's options. clang does not know all of them.
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" "$tidy" -p build --quiet \
  --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unused-command-line-argument || exit 1
