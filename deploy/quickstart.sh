#!/usr/bin/env bash
# From a clean clone to a trained network: installs what is missing, builds, starts a private daemon, trains on
# Fashion-MNIST, and stops the daemon. Leaves the build and nothing else.
set -euo pipefail

usage() {
  cat <<'EOF'
Usage: deploy/quickstart.sh [OPTION...]
Options go to `lenetctl submit`; without any: --dataset fashion-mnist --epochs 10
EOF
}

case "${1-}" in
  -h | --help) usage; exit 0 ;;
esac
job=("$@")
[ $# -gt 0 ] || job=(--dataset fashion-mnist --epochs 10)

cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/release

fail() {
  printf 'quickstart: %s\n' "$1" >&2
  exit 1
}

daemon=
scratch=
cleanup() {
  if [ -n "$daemon" ] && kill -TERM "$daemon" 2>/dev/null; then
    for _ in {1..100}; do
      kill -0 "$daemon" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
  fi
  [ -z "$scratch" ] || rm -rf "$scratch"
}
trap cleanup EXIT
interrupted() {
  if [ -n "$daemon" ]; then
    echo "quickstart: interrupted; its daemon and the job end" >&2
  else
    echo "quickstart: interrupted; run it again to go on where it was" >&2
  fi
  exit 130
}
trap interrupted INT
trap 'exit 143' TERM HUP

deploy/install-deps.sh || fail "the dependencies could not be installed"

echo "Building into $build (some minutes the first time)"
scratch=$(mktemp -d)
cmake --preset release >"$scratch/configure.log" 2>&1 || {
  cat "$scratch/configure.log" >&2
  fail "CMake could not configure the build"
}
cmake --build --preset release || fail "the build failed; see the compiler's message above"

echo "Starting a private lenetd"
"$build/server/lenetd" --config /dev/null --listen 127.0.0.1:0 --port-file "$scratch/port" --state-dir "$scratch/state" \
  --metrics-listen off \
  >"$scratch/lenetd.log" 2>&1 </dev/null &
daemon=$!
for _ in {1..600}; do
  [ ! -s "$scratch/port" ] || break
  kill -0 "$daemon" 2>/dev/null || break
  sleep 0.05
done
if [ ! -s "$scratch/port" ]; then
  cat "$scratch/lenetd.log" >&2
  fail "lenetd did not start; its log is above"
fi
server=$(<"$scratch/port")

# Not the last command: the trap must run, and the job's exit code is the script's.
status=0
"$build/client/ctl/lenetctl" --server "$server" submit "${job[@]}" || status=$?
if [ "$status" -ne 0 ] && ! kill -0 "$daemon" 2>/dev/null; then
  tail -n 40 "$scratch/lenetd.log" >&2
  fail "lenetd ended early; its log is above"
fi
echo "quickstart: its daemon ends, and what it saved is removed; to keep them, run $build/server/lenetd yourself (README.md)"
exit "$status"
