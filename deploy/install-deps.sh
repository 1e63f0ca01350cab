#!/usr/bin/env bash
# Installs what the build and the tests need, with apt, on Debian 12 and Ubuntu 24.04. Asks nothing; does nothing if
# everything is there.
set -euo pipefail

usage() {
  cat <<'EOF'
Usage: deploy/install-deps.sh [--dev]
  --dev   also clang, clang-tidy and clang-format, for the presets asan and lint (about 400 MB on disk)
EOF
}

packages=(
  # Compiler and build tools
  g++ cmake ninja-build ccache pkg-config
  # For cpack's packages
  dpkg-dev file
  # gRPC, Protobuf, Abseil
  libgrpc++-dev libgrpc-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libabsl-dev libssl-dev
  # Trainer: gzip, JSON
  zlib1g-dev nlohmann-json3-dev
  # Server and client: SQLite, command line, configuration file, Prometheus endpoint
  libsqlite3-dev libcli11-dev libtomlplusplus-dev prometheus-cpp-dev libcivetweb-dev
  # Tests and data
  libgtest-dev libgmock-dev dataset-fashion-mnist openssl python3 python3-grpcio
)

case "${1-}" in
  "") ;;
  --dev) packages+=(clang clang-tidy clang-format libclang-rt-dev) ;;
  -h | --help) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac

fail() {
  printf 'install-deps: %s\n' "$1" >&2
  exit 1
}

# The packages that dpkg does not know as installed.
missing_packages() {
  local installed package
  # dpkg-query fails if it does not know one of them.
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null || true)
  for package in "${packages[@]}"; do
    grep -qxF -- "installed $package" <<<"$installed" || printf '%s\n' "$package"
  done
}

# What has to come from NVIDIA; without it the build leaves the CUDA plug-in out.
report_cuda() {
  local absent=() toolkit=${CUDA_HOME:-/usr/local/cuda}
  command -v nvcc >/dev/null || [ -x "$toolkit/bin/nvcc" ] || absent+=("CUDA Toolkit 12.5 or later (package cuda-toolkit-13-0)")
  find_header cudnn.h || absent+=("cuDNN 9 (package cudnn9-cuda-13)")
  find_header nccl.h || absent+=("NCCL 2.18 or later (packages libnccl2 libnccl-dev)")
  [ ${#absent[@]} -gt 0 ] || return 0
  echo "Not found, and not in this distribution; needed for GPUs alone, to be installed from NVIDIA's package repository:"
  printf '  %s\n' "${absent[@]}"
}

find_header() {
  local folder
  for folder in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/include /usr/include/x86_64-linux-gnu /usr/local/include; do
    [ ! -e "$folder/$1" ] || return 0
  done
  return 1
}

distribution=unknown
if [ -r /etc/os-release ]; then
  distribution=$(. /etc/os-release && printf '%s %s' "${ID-unknown}" "${VERSION_ID-}")
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  fail "this distribution ($distribution) has no apt. Supported: Debian 12, Ubuntu 24.04. Install what these stand for:
  ${packages[*]}"
fi

read -ra missing <<<"$(missing_packages | tr '\n' ' ')"
if [ ${#missing[@]} -eq 0 ]; then
  echo "All packages are installed."
  report_cuda
  exit 0
fi

case "$distribution" in
  "debian 12" | "ubuntu 24.04") ;;
  *) fail "unsupported distribution: $distribution. Supported: Debian 12, Ubuntu 24.04. These packages are missing:
  ${missing[*]}" ;;
esac

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null ||
    fail "needs root to install packages, and there is no sudo. As root: apt-get install ${missing[*]}"
  as_root=(sudo)
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

echo "Installing: ${missing[*]}"
apt update || fail "apt-get update failed; see its message above"
apt install --no-install-recommends "${missing[@]}" ||
  fail "apt-get install failed; see its message above. On Ubuntu the component 'universe' must be enabled"
read -ra missing <<<"$(missing_packages | tr '\n' ' ')"
[ ${#missing[@]} -eq 0 ] || fail "still missing after the installation: ${missing[*]}"
report_cuda
