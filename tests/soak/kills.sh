#!/usr/bin/env bash
# Kills a daemon 500 times at random moments; see tests/e2e/test_survival.py. About 10 minutes on 2 cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export LENET_KILLS=${LENET_KILLS:-500} LENET_SEED=${LENET_SEED:-$RANDOM}
echo "LENET_KILLS=$LENET_KILLS LENET_SEED=$LENET_SEED"
exec ctest --test-dir build/dev -R '^e2e_survival$' -V --timeout 14400
