#!/usr/bin/env bash
# All tests under AddressSanitizer and UndefinedBehaviorSanitizer, those of the RPCs and the client included.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cmake --preset asan -DLENET_E2E_LENETCTL=
cmake --build build/asan --target unit_tests lenetd lenetctl lenet_cpu
exec ctest --test-dir build/asan --output-on-failure -j "$(nproc)" -E '^e2e_(endurance|latency)$'
