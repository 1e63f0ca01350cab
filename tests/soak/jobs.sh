#!/usr/bin/env bash
# 10,000 jobs of one step in one daemon, and its restart after them; see tests/e2e/test_endurance.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export LENET_JOBS=${LENET_JOBS:-10000}
exec ctest --test-dir build/dev -R '^e2e_endurance$' -V --timeout 14400
