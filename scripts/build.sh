#!/usr/bin/env bash
# Builds the program: build.sh [--preset release|debug|asan] [--tests]. Quiet unless it fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=release
tests=OFF
while (($#)); do
  case $1 in
    --preset)
      preset=${2:?"build.sh: --preset needs a name: release, debug or asan"}
      shift 2
      ;;
    --preset=*) preset=${1#*=} && shift ;;
    --tests) tests=ON && shift ;;
    *)
      echo "build.sh: unknown option $1; allowed: --preset NAME, --tests" >&2
      exit 2
      ;;
  esac
done

log=$(mktemp)
trap 'rm -f "$log"' EXIT

quietly() {
  "$@" >"$log" 2>&1 && return 0
  local code=$?
  cat "$log" >&2
  echo "build.sh: failed: $*" >&2
  exit "$code"
}

[[ ! -t 2 ]] || echo "build.sh: building preset $preset .." >&2
quietly cmake --preset "$preset" -DEGT_TESTS=$tests
quietly cmake --build --preset "$preset"
