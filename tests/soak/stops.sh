#!/usr/bin/env bash
# Stops 200 jobs at random moments; see tests/e2e/test_stop.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export LENET_STOPS=${LENET_STOPS:-200}
exec ctest --test-dir build/dev -R '^e2e_stop$' -V --timeout 3600
