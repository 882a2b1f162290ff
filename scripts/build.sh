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

# One build at a time: several nodes or jobs may share this checkout.
mkdir -p build
exec 7>build/.lock
flock 7

# Prints the last line of the log once per minute, so that a long build does not look like a hang. It ends with this
# script. `read` waits on a pipe without a writer, since a `sleep` would outlive this script.
report_progress() {
  exec 8<> <(:)
  while ! read -r -t 60 -u 8 && kill -0 $$ 2>/dev/null; do echo "build.sh: $(tail -n 1 "$log" | cut -c 1-100)"; done
}

quietly() {
  local code=0
  "$@" >"$log" 2>&1 || code=$?
  ((code != 0)) || return 0
  cat "$log" >&2
  echo "build.sh: failed: $*" >&2
  exit "$code"
}

if [[ ! -x build/extreme_gpu_trainer ]]; then echo "build.sh: building; the first time this takes up to 10 min on 2 cores" >&2; fi
report_progress >&2 7>&- &
trap 'kill $! 2>/dev/null; rm -f "$log"' EXIT
quietly cmake --preset "$preset" -DEGT_TESTS=$tests
quietly cmake --build --preset "$preset"
