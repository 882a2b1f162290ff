#!/usr/bin/env bash
# Installs the packages that the build needs (Debian, Ubuntu): setup.sh [--tests]. With --tests it also installs
# programs that the tests start: Slurm, sshd, a browser, shells. Does nothing if all packages are installed.
# On a machine with NVIDIA GPUs it installs the newest CUDA toolkit and NCCL that the driver supports, from the
# configured package sources. If they have none, it exits with 3 and prints the commands that add NVIDIA's repository.
# With EGT_INSTALL_CUDA=0 it does not install CUDA or NCCL.
set -euo pipefail

packages=(build-essential cmake ninja-build pkg-config libopenmpi-dev openmpi-bin libopenblas-dev libhwloc-dev
  libcli11-dev libfmt-dev nlohmann-json3-dev libgtest-dev libgmock-dev python3 iproute2 file)
# Without these packages the build omits features, and the program reports which.
optional=(libdnnl-dev libstb-dev libjs-dygraphs libcpp-httplib-dev)
# Without these packages some tests are skipped. Their services stay off, because the tests start their own instances.
for_tests=(munge slurmctld slurmd slurm-client openssh-client openssh-server chromium tmux prometheus python3-yaml python3-jsonschema man-db zsh fish clang-format)
commands=(c++ cmake ninja pkg-config mpirun mpicxx python3)

say() { echo "setup.sh: $*" >&2; }

# missing_packages PACKAGE..: prints the packages that are not installed.
missing_packages() {
  local package installed
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package} ' "$@" 2>/dev/null) || true # 1 if it does not know one
  for package in "$@"; do
    [[ " $installed" == *" installed $package "* ]] || echo "$package"
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

with_tests=
case ${1-} in
  "") ;;
  --tests) with_tests=1 ;;
  *) say "unknown option $1; allowed: --tests" && exit 2 ;;
esac

install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2
}

install_with_apt() {
  local missing wanted
  mapfile -t missing < <(missing_packages "${packages[@]}")
  mapfile -t wanted < <(missing_packages "${optional[@]}")
  ((${#missing[@]} + ${#wanted[@]})) || return 0
  say "installing ${missing[*]} ${wanted[*]}"
  as_root apt-get update -q >&2 || ((${#missing[@]} == 0)) || stop "apt-get update failed: see above"
  ((${#missing[@]} == 0)) || install "${missing[@]}" || stop "could not install ${missing[*]}: see above"
  ((${#wanted[@]} == 0)) || install "${wanted[@]}" ||
    say "could not install ${wanted[*]}: loadtest on the host, its images, the charts of report.html, or --serve will be left out"
}

# Debian packages start their services when they are installed, unless policy-rc.d exits with 101.
install_for_tests() {
  local wanted package policy=/usr/sbin/policy-rc.d
  mapfile -t wanted < <(missing_packages "${for_tests[@]}")
  ((${#wanted[@]})) || return 0
  say "installing ${wanted[*]}"
  as_root apt-get update -q >&2 || true
  if [[ ! -e $policy ]]; then
    trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
  fi
  install "${wanted[@]}" || for package in "${wanted[@]}"; do
    install "$package" || say "could not install $package: tests that need it are skipped"
  done
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

stop() {
  say "$@"
  exit 3
}

# Prints the PCI addresses of the NVIDIA GPUs (PCI class VGA or 3D controller).
nvidia_gpus() {
  local device vendor kind
  for device in /sys/bus/pci/devices/*; do
    if ! { read -r vendor <"$device/vendor" && read -r kind <"$device/class"; } 2>/dev/null; then continue; fi
    [[ $vendor != 0x10de || $kind != 0x030[02]?? ]] || echo "${device##*/}"
  done
}

nvcc_path() { command -v nvcc || { [[ -x /usr/local/cuda/bin/nvcc ]] && echo /usr/local/cuda/bin/nvcc; }; }
has_nccl() { find /usr/include /usr/local/cuda/include -maxdepth 2 -name nccl.h 2>/dev/null | grep -q .; }
# Prints the newest CUDA version that the driver supports, such as 12.8, or nothing without a driver.
driver_cuda() { { nvidia-smi 2>/dev/null || true; } | sed -n 's/.*CUDA Version: *\([0-9]*\.[0-9]*\).*/\1/p'; }
is_not_newer() { [[ $(printf '%s\n' "$1" "$2" | sort -V | tail -n 1) == "$2" ]]; }

oldest_cuda=12.0 # the first version whose nvcc supports C++20

# toolkit_package DRIVER_CUDA: prints the newest supported toolkit package and its version: "cuda-toolkit-12-8 12.8".
toolkit_package() {
  local version
  while read -r version; do
    if is_not_newer "$version" "$1" && is_not_newer "$oldest_cuda" "$version"; then
      echo "cuda-toolkit-${version/./-} $version" && return
    fi
  done < <(apt-cache search --names-only '^cuda-toolkit-[0-9]+-[0-9]+$' |
    sed -n 's/^cuda-toolkit-\([0-9]*\)-\([0-9]*\) .*/\1.\2/p' | sort -Vr)
  version=$(apt-cache policy nvidia-cuda-toolkit | sed -n 's/^ *Candidate: \([0-9]*\.[0-9]*\).*/\1/p')
  if [[ -n $version ]] && is_not_newer "$version" "$1" && is_not_newer "$oldest_cuda" "$version"; then
    echo "nvidia-cuda-toolkit $version"
  fi
}

# nccl_version DRIVER_CUDA TOOLKIT: prints the newest supported NCCL version for the toolkit's major version.
nccl_version() {
  local version cuda
  while read -r version; do
    cuda=${version##*+cuda}
    if [[ $version != *+cuda* ]] || { [[ ${cuda%%.*} == "${2%%.*}" ]] && is_not_newer "$cuda" "$1"; }; then
      echo "$version" && return
    fi
  done < <(apt-cache madison libnccl-dev | awk '{ print $3 }')
}

stop_without_packages() { # arguments: DRIVER_CUDA GPU_ADDRESS..
  local driver=$1 name
  shift
  name=$(sed -n 's/^\(ID\|VERSION_ID\)="\{0,1\}\([^"]*\)"\{0,1\}$/\2/p' /etc/os-release 2>/dev/null | sort -r | tr -d '.\n')
  say "the GPUs at $* need a CUDA toolkit of $oldest_cuda to $driver and NCCL, and the package sources have none." \
    "Add NVIDIA's repository, then start this again (or set EGT_INSTALL_CUDA=0 and use --backend host):"
  case $name in
    debian* | ubuntu*) cat >&2 <<END
  wget https://developer.download.nvidia.com/compute/cuda/repos/$name/$(uname -m)/cuda-keyring_1.1-1_all.deb
  dpkg -i cuda-keyring_1.1-1_all.deb && apt-get update
END
      ;;
    *) cat >&2 <<END
  dnf config-manager --add-repo https://developer.download.nvidia.com/compute/cuda/repos/rhel9/$(uname -m)/cuda-rhel9.repo
  dnf install cuda-toolkit-${driver/./-} libnccl libnccl-devel
END
      ;;
  esac
  exit 3
}

install_cuda() {
  local gpus driver nvcc toolkit version nccl packages=()
  mapfile -t gpus < <(nvidia_gpus)
  nvcc=$(nvcc_path) || true
  ((${#gpus[@]})) || return 0
  if [[ -n $nvcc ]] && has_nccl; then return 0; fi
  if [[ ${EGT_INSTALL_CUDA-1} == 0 ]]; then
    say "the CUDA toolkit or NCCL is missing, and EGT_INSTALL_CUDA=0: only --backend host will work"
    return 0
  fi
  driver=$(driver_cuda)
  [[ -n $driver ]] || stop "the GPUs at ${gpus[*]} have no working driver: nvidia-smi fails. Install NVIDIA's driver" \
    "(Debian: apt-get install nvidia-driver; Ubuntu: ubuntu-drivers install --gpgpu), then start this again"
  command -v apt-cache >/dev/null || stop_without_packages "$driver" "${gpus[@]}"
  as_root apt-get update -q >&2
  if [[ -n $nvcc ]]; then
    version=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p')
  else
    read -r toolkit version < <(toolkit_package "$driver") || true
    [[ -n ${toolkit-} ]] || stop_without_packages "$driver" "${gpus[@]}"
    packages+=("$toolkit")
  fi
  if ! has_nccl; then
    nccl=$(nccl_version "$driver" "$version")
    [[ -n $nccl ]] || stop_without_packages "$driver" "${gpus[@]}"
    packages+=("libnccl2=$nccl" "libnccl-dev=$nccl")
  fi
  say "the driver supports CUDA $driver; installing ${packages[*]} (EGT_INSTALL_CUDA=0 prevents it)"
  install "${packages[@]}" || stop "could not install ${packages[*]}; run: apt-get install ${packages[*]}"
}

if command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; then
  install_with_apt
  [[ -z $with_tests ]] || install_for_tests
else
  check_without_apt
fi
install_cuda
