#!/usr/bin/env bash
# A million runs of each fuzz target; of the scripts of calls in which jobs run, 20,000.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cmake --preset asan
cmake --build build/asan --target fuzzers
fuzz() {
  local corpus
  corpus=$(mktemp -d)
  "build/asan/tests/unit/$1" -max_len=4096 -runs="${LENET_RUNS:-1000000}" -artifact_prefix=build/ "${@:3}" "$corpus" \
    "tests/data/$2"
  rm -r "$corpus"
}
fuzz trainer/data/idx_fuzz idx
fuzz trainer/train/checkpoint_fuzz checkpoint
fuzz server/rpc/requests_fuzz requests
scripts=(-max_len=128 -entropic=0 -detect_leaks=0)
fuzz server/rpc/service_fuzz service "${scripts[@]}"
LENET_JOBS_RUN=1 LENET_RUNS=${LENET_JOB_RUNS:-20000} fuzz server/rpc/service_fuzz service "${scripts[@]}"
