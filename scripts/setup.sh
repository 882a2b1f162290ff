#!/usr/bin/env bash
# Installs what the build and the tests need (Debian, Ubuntu). Does nothing where all of it is there.
set -euo pipefail

packages=(build-essential cmake ninja-build pkg-config libopenmpi-dev openmpi-bin libopenblas-dev libhwloc-dev
  libcli11-dev libfmt-dev libspdlog-dev nlohmann-json3-dev libgtest-dev libgmock-dev
  libbenchmark-dev python3 iproute2 file)
# Without these the build leaves something out, and the program says what.
optional=(libdnnl-dev libstb-dev libjs-dygraphs libcpp-httplib-dev)
commands=(c++ cmake ninja pkg-config mpirun mpicxx python3)

say() { echo "setup.sh: $*" >&2; }

# missing_packages PACKAGE..
missing_packages() {
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
  done
}

missing_commands() {
  local command
  for command in "${commands[@]}"; do
    command -v "$command" >/dev/null || echo "$command"
  done
}

as_root() {
  if ((EUID == 0)); then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    say "run this as root (there is no sudo here): $*"
    return 1
  fi
}

install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2
}

install_with_apt() {
  local missing wanted
  mapfile -t missing < <(missing_packages "${packages[@]}")
  mapfile -t wanted < <(missing_packages "${optional[@]}")
  ((${#missing[@]} + ${#wanted[@]})) || return 0
  say "installing ${missing[*]} ${wanted[*]}"
  as_root apt-get update -q >&2
  ((${#missing[@]} == 0)) || install "${missing[@]}"
  ((${#wanted[@]} == 0)) || install "${wanted[@]}" ||
    say "could not install ${wanted[*]}: loadtest on the host, its images, the charts of report.html, or --serve will be left out"
}

check_without_apt() {
  local missing
  mapfile -t missing < <(missing_commands)
  if ((${#missing[@]})); then
    say "this machine has no apt-get; install these commands by its own means: ${missing[*]}" \
      "(on Debian the packages are: ${packages[*]})"
    return 1
  fi
}

# CUDA is never installed unasked: its version must suit the driver.
advise_about_cuda() {
  [[ -e /proc/driver/nvidia/version ]] || command -v nvidia-smi >/dev/null || return 0
  if ! command -v nvcc >/dev/null && [[ ! -x /usr/local/cuda/bin/nvcc ]]; then
    say "an NVIDIA driver is here, but no CUDA toolkit (nvcc): the program will use the host backend only." \
      "To use the GPUs, install cuda-toolkit (from NVIDIA's own package repository) or nvidia-cuda-toolkit" \
      "(from the distribution), and libnccl2 and libnccl-dev, then build again."
  elif ! find /usr/include /usr/local/cuda/include -maxdepth 2 -name nccl.h 2>/dev/null | grep -q .; then
    say "the CUDA toolkit is here, but no NCCL: the program will use the host backend only." \
      "To use the GPUs, install libnccl2 and libnccl-dev, then build again."
  fi
}

if command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; then
  install_with_apt
else
  check_without_apt
fi
advise_about_cuda
