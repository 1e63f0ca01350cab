#!/usr/bin/env bash
# All tests under AddressSanitizer and UndefinedBehaviorSanitizer, those of the RPCs and the client included.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cmake --preset asan -DLENET_E2E_LENETCTL=
cmake --build build/asan --target unit_tests lenetd lenetctl lenet_cpu
ctest --test-dir build/asan --output-on-failure -j "$(nproc)" -E '^e2e_(endurance|hostile|latency|streams)$'
# One of these looks at the daemon's memory, in which freed memory that the sanitizer keeps would count.
ASAN_OPTIONS=quarantine_size_mb=2:thread_local_quarantine_size_kb=64 exec \
  ctest --test-dir build/asan --output-on-failure -R '^e2e_streams$'
