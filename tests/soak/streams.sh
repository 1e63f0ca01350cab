#!/usr/bin/env bash
# 100 watchers, each cut off 20 times; see tests/e2e/test_streams.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export LENET_WATCHERS=${LENET_WATCHERS:-100} LENET_CUTS=${LENET_CUTS:-20}
exec ctest --test-dir build/dev -R '^e2e_streams$' -V --timeout 3600
