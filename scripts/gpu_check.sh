#!/usr/bin/env bash
# On a machine with GPUs: builds with CUDA in build-gpu/ and runs the tests that need a device.
# gpu_check.sh [build] [tests]: the parts to run, in that order; without any, all of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=build-gpu

build() {
  cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DEGT_CUDA=ON -DEGT_TESTS=ON
  cmake --build "$folder"
}

tests() {
  ctest --test-dir "$folder" -L gpu --output-on-failure --no-tests=error
}

devices() {
  nvidia-smi --query-gpu=index,name,driver_version,memory.total,power.limit --format=csv || {
    echo "gpu_check.sh: no NVIDIA GPU answers on this machine (nvidia-smi); nothing was checked" >&2
    exit 3
  }
}

parts=("$@")
(($#)) || parts=(build tests)
for part in "${parts[@]}"; do
  case $part in
    build | tests) ;;
    *)
      echo "gpu_check.sh: unknown part $part; allowed: build, tests" >&2
      exit 2
      ;;
  esac
done

devices
for part in "${parts[@]}"; do "$part"; done
