#!/usr/bin/env bash
# Each hostile client does what it does twenty times; see tests/e2e/test_hostile.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export LENET_HOSTILE=${LENET_HOSTILE:-20}
exec ctest --test-dir build/dev -R '^e2e_hostile$' -V --timeout 3600
