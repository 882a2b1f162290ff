#!/usr/bin/env bash
# Builds the program's Debian package in build-package/: package.sh [host|cuda]. host (the default) has only the host
# backend. cuda adds the GPU backend; the machine that installs it needs CUDA and NCCL.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1-host}" in
  host) cuda=OFF ;;
  cuda) cuda=ON ;;
  *) echo "package.sh: unknown kind $1; use host or cuda" >&2 && exit 2 ;;
esac
scripts/setup.sh
folder=build-package/${1-host}
cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DEGT_TESTS=OFF -DEGT_CUDA="$cuda" -DEGT_CUDA_ARCHITECTURES=all
cmake --build "$folder" --parallel "$(nproc)"
(cd "$folder" && cpack)
mv "$folder"/*.deb build-package/
ls build-package/*.deb
