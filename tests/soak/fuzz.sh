#!/usr/bin/env bash
# A million runs of each fuzz target.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cmake --preset asan
cmake --build build/asan --target fuzzers
fuzz() {
  local corpus
  corpus=$(mktemp -d)
  "build/asan/tests/unit/$1" -max_len=4096 -runs="${LENET_RUNS:-1000000}" -artifact_prefix=build/ "$corpus" "tests/data/$2"
  rm -r "$corpus"
}
fuzz trainer/data/idx_fuzz idx
fuzz trainer/train/checkpoint_fuzz checkpoint
fuzz server/rpc/requests_fuzz requests
