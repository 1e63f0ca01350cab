#!/usr/bin/env bash
# Makes a self-contained folder for GPU hosts that lack the distribution's gRPC and Abseil packages: programs, plug-ins,
# GPU tests and benchmarks, and the libraries they need, without CUDA's own.
set -euo pipefail

usage() {
  cat <<'EOF'
Usage: deploy/bundle.sh DIR [--without-cpu]
  DIR             the folder to make; an earlier bundle there is replaced
  --without-cpu   leave the CPU plug-in out
EOF
}

fail() {
  printf 'bundle: %s\n' "$1" >&2
  exit 1
}

folder=
cpu=ON
for argument in "$@"; do
  case "$argument" in
    -h | --help) usage; exit 0 ;;
    --without-cpu) cpu=OFF ;;
    -*) usage >&2; exit 2 ;;
    *) [ -z "$folder" ] || { usage >&2; exit 2; }; folder=$argument ;;
  esac
done
[ -n "$folder" ] || { usage >&2; exit 2; }

if [ -e "$folder" ] && [ -n "$(ls -A "$folder")" ]; then
  [ -x "$folder/run-gpu-tests.sh" ] || fail "$folder is not empty and not an earlier bundle"
  rm -rf "$folder"
fi
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/bundle

cmake --preset bundle -DLENET_CPU=$cpu || fail "CMake could not configure the build; see above"
cmake --build "$build" --target bundle || fail "the build failed; see above"
cmake --install "$build" --prefix "$folder" --strip >/dev/null
cmake --install "$build" --prefix "$folder" --strip --component gpu_tests >/dev/null
[ -e "$folder/lib/lenet/liblenet_cuda.so" ] ||
  echo "bundle: without the CUDA plug-in: this machine has no CUDA Toolkit, cuDNN or NCCL to build it with" >&2

install -D -m 644 -t "$folder/tests/data" tests/data/lenet_mnist_seed1.safetensors
cp deploy/bundle/with-cuda.sh deploy/bundle/run-gpu-tests.sh LICENSE "$folder/"

# Prints name and path of what a file needs beside the bundle, CUDA's libraries, and those of every system.
elsewhere='lib(cuda|cudart|cublas|cublasLt|cudnn|nccl|nvrtc)[_a-z]*|ld-linux-x86-64|linux-vdso'
everywhere='lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)'
needs() {
  ldd "$1" | awk -v own="$folder/" '$2 == "=>" && index($3, own) != 1 {print $1, $3}' |
    grep -vE "^($elsewhere|$everywhere)\.so" || true
}

for file in "$folder"/bin/lenetd "$folder"/lib/lenet/liblenet_*.so; do
  while read -r name path; do
    [ -e "$path" ] || fail "$(basename "$file") needs $name, which is not on this machine"
    install -m 644 "$path" "$folder/lib/lenet/$name"
    strip --strip-unneeded "$folder/lib/lenet/$name"
  done < <(needs "$file")
done
for file in "$folder"/bin/* "$folder"/tests/* "$folder"/tests/paced/* "$folder"/lib/lenet/liblenet_*.so; do
  [ -f "$file" ] || continue
  rest=$(needs "$file")
  [ -z "$rest" ] || fail "$(basename "$file") would need, beside the bundle: $rest"
done

# Their licences ask for their notices.
for package in libabsl-dev libc-ares-dev libcivetweb-dev libcli11-dev libgrpc-dev libgtest-dev libprotobuf-dev \
  libre2-dev libssl-dev libtomlplusplus-dev nlohmann-json3-dev prometheus-cpp-dev zlib1g-dev; do
  notice=/usr/share/doc/$package/copyright
  [ ! -e "$notice" ] || install -D -m 644 "$notice" "$folder/licenses/$package"
done

du -sm "$folder" | awk '{print $2 ": " $1 " MB"}'
