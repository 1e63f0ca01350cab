#!/usr/bin/env bash
# Runs the bundle's GPU tests. Those that need more GPUs than there are skip, with the reason.
#
# Usage: run-gpu-tests.sh [GTEST_ARGUMENT...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

export LENET_REFERENCE=${LENET_REFERENCE:-$PWD/tests/data/lenet_mnist_seed1.safetensors}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# count KIND: what gtest's closing lines in the log sum to.
count() {
  awk -v kind="$1" '$1 == "[" && $2 == kind && $5 ~ /^tests?[.,]/ {sum += $4} END {print sum + 0}' "$log"
}

broken=0
run() {
  echo "== $*"
  "${@:2}" ./with-cuda.sh "$1" --gtest_brief=1 "${arguments[@]}" 2>&1 | tee -a "$log" || broken=$((broken + 1))
}
arguments=("$@")
for test in tests/*_test; do run "$test"; done
# The tests of every backend once more with the engine that serves every net.
for test in tests/*_gpu_test; do run "$test" env LENET_CUDA_TUNING=engine=layered; done
# And those of several ranks with sums by NCCL.
run tests/cuda_ranks_test env LENET_CUDA_TUNING=sums=nccl
passed=$(count PASSED) failed=$(count FAILED) skipped=$(count SKIPPED)
# A test that takes its process with it has no closing line.
[ "$broken" -eq 0 ] || [ "$failed" -gt 0 ] || failed=$broken
echo "$passed passed, $failed failed, $skipped skipped"
[ "$passed" -gt 0 ] || [ "$failed" -gt 0 ] || echo "run-gpu-tests: no test ran; the reason stands above" >&2
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
