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

if [[ ! -x build/extreme_gpu_trainer ]]; then echo "build.sh: building; the first time this takes about 5 min on 2 cores" >&2; fi
report_progress >&2 7>&- &
trap 'kill $! 2>/dev/null; rm -f "$log"' EXIT

# Prints what decides which compiler and libraries CMake finds: folder, packages, files installed by hand, the GPUs.
environment() {
  local nvcc
  nvcc=$(command -v nvcc) || true
  echo "$PWD $PATH ${CC-} ${CXX-} ${CUDACXX-} ${CMAKE_PREFIX_PATH-}"
  stat -Lc '%n %Y' CMakePresets.json /var/lib/dpkg/status /var/lib/rpm /usr{,/local}/{bin,include,lib,lib64} "/usr/lib/$(uname -m)-linux-gnu" \
    {/usr/local/cuda,"${nvcc%/bin/nvcc}"}/{bin/nvcc,include,lib64} 2>/dev/null || true
  cat /proc/driver/nvidia/version 2>/dev/null || true
  grep -hs '^Model' /proc/driver/nvidia/gpus/*/information || true
}

# CMake takes seconds to find what it found before. Ninja starts it again if one of its files has changed.
folder=build
[[ $preset == release ]] || folder=build-$preset
state=$(environment)
if [[ $state != "$(cat "$folder/.environment" 2>/dev/null)" ]] || ! grep -qsx "EGT_TESTS:BOOL=$tests" "$folder/CMakeCache.txt"; then
  rm -f "$folder/.environment"
  quietly cmake --preset "$preset" -DEGT_TESTS=$tests
  echo "$state" >"$folder/.environment"
fi
quietly cmake --build --preset "$preset"
