#!/usr/bin/env bash
# The Debian packages in a fresh Debian 12, without systemd and with one that runs: installation, upgrade over a daemon
# with a running and a queued job, removal, purge. As root, with debootstrap and systemd-nspawn (package
# systemd-container); takes 4 minutes on 2 cores once the programs are built. LENET_DEBIAN=FOLDER: a root that
# debootstrap has made, to be copied in place of a new one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

root=$(mktemp -d /var/tmp/lenet-packages.XXXXXX)
chmod 755 "$root"  # it becomes /
debs=$(mktemp -d)
machine=
finish() {
  [ -z "$machine" ] || { kill -TERM "$machine" && wait "$machine"; } 2>/dev/null || true
  [ "$part" = end ] || echo "packages: FAILED in: $part" >&2
  rm -rf --one-file-system "$root" "$debs"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP
part="the build"
begin() {
  part=$1
  echo "== $SECONDS s: $part"
}

fail() {
  echo "packages: $part: $1" >&2
  exit 1
}
same() { [ "$1" = "$2" ] || fail "'$1' is not '$2'${3:+: $3}"; }
has() { [[ $1 == *"$2"* ]] || fail "no '$2' in: $1"; }

# Commands in the root, with the network of this machine, or with none.
online() { unshare -mpf --mount-proc -R "$root" env -i DEBIAN_FRONTEND=noninteractive PATH="$PATH" HOME=/root "$@"; }
offline() {
  unshare -mnpf sh -c 'ip link set lo up && exec unshare -mpf --mount-proc -R "$@"' _ "$root" \
    env -i DEBIAN_FRONTEND=noninteractive PATH="$PATH" HOME=/root "$@"
}
apt() { online apt-get -q -y "$@" </dev/null >"$root/apt.log" 2>&1 || { cat "$root/apt.log" >&2; fail "apt-get $1"; }; }
state_of() { online dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null || true; }

begin "the build"
cmake --preset release >/dev/null
cmake --build --preset release
for release in 1 2; do
  cpack --preset release -D CPACK_DEBIAN_PACKAGE_RELEASE=$release -B "$debs/$release" >/dev/null 2>&1
done
! command -v lintian >/dev/null || lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$debs"/1/*.deb

begin "a fresh Debian"
if [ -n "${LENET_DEBIAN-}" ]; then
  cp -a "$LENET_DEBIAN/." "$root"
else
  unshare -m debootstrap --variant=minbase bookworm "$root" http://deb.debian.org/debian >/dev/null
fi
install -m 644 -D -t "$root/debs" "$debs"/1/*.deb
install -m 644 -D -t "$root/next" "$debs"/2/*.deb
cp /etc/resolv.conf "$root/etc/resolv.conf"
echo "deb http://deb.debian.org/debian bookworm main" >"$root/etc/apt/sources.list"
version=$(basename "$root"/debs/lenetctl_*.deb | cut -d_ -f2)
next=$(basename "$root"/next/lenetctl_*.deb | cut -d_ -f2)

begin "installation where there is no systemd"
apt update
apt install --no-install-recommends systemd-standalone-sysusers dataset-fashion-mnist procps
apt install --no-install-recommends "/debs/lenetd_${version}_amd64.deb" "/debs/lenetctl_${version}_amd64.deb"
same "$(state_of lenetd)$(state_of lenetctl)" "ii ii "
same "$(online stat -c '%U:%G %a' /var/lib/lenet)" "lenet:lenet 700"
same "$(online stat -c '%U:%G %a' /etc/lenet/lenetd.toml)" "root:root 644"
same "$(online dpkg-query -W -f '${Conffiles}' lenetd | awk '{print $1}')" /etc/lenet/lenetd.toml
has "$(online id lenet)" "(lenet)"
same "$(online dpkg --verify lenetd lenetctl)" ""
[ -L "$root/etc/systemd/system/multi-user.target.wants/lenetd.service" ] || fail "the service is not enabled"
for file in bash-completion/completions/lenetctl zsh/site-functions/_lenetctl fish/vendor_completions.d/lenetctl.fish \
  man/man1/lenetctl.1.gz man/man8/lenetd.8.gz man/man5/lenetd.toml.5.gz doc/lenetd/copyright \
  doc/lenetd/changelog.Debian.gz doc/lenetd/examples/prometheus.yml; do
  [ -s "$root/usr/share/$file" ] || fail "$file is missing"
done
online lenetd --check-config | grep -q 'its file: /etc/lenet/lenetd.toml$' || fail "the configuration file is not read"

# A daemon by hand, a job, and an end in order, as the user $1.
quick_start() {
  offline runuser -u "$1" -- env HOME="/home/$1" sh -ec '
    cd /tmp
    lenetd --port-file /tmp/port 2>/tmp/log & daemon=$!
    for i in $(seq 600); do [ ! -s /tmp/port ] || break; sleep 0.1; done
    lenetctl info >/dev/null; lenetctl datasets | grep fashion-mnist >/dev/null
    lenetctl submit --max-steps 100
    kill -TERM $daemon; wait $daemon; rm -f /tmp/port /tmp/log'
}
begin "the quick start as an ordinary user, and as lenet"
online useradd -m tester
has "$(quick_start tester)" "succeeded"
[ -s "$root/home/tester/.local/state/lenetd/lenetd.db" ] || fail "no state in the user's home"
online sh -c 'mkdir /home/lenet && chown lenet: /home/lenet'
has "$(quick_start lenet)" "succeeded"

begin "upgrade, removal, purge and reinstallation where there is no systemd"
echo 'log_level = "debug"' >"$root/etc/lenet/lenetd.toml"
offline dpkg -i "/next/lenetd_${next}_amd64.deb" "/next/lenetctl_${next}_amd64.deb" >/dev/null </dev/null
same "$(online dpkg-query -W -f '${Version}' lenetd)" "$next"
same "$(cat "$root/etc/lenet/lenetd.toml")" 'log_level = "debug"' "the administrator's file was replaced"
[ ! -e "$root/etc/lenet/lenetd.toml.dpkg-dist" ] || fail "a prompt for a file that did not change"
touch "$root/var/lib/lenet/kept"
offline dpkg -r lenetd lenetctl >/dev/null
same "$(state_of lenetd)" "rc "
[ -e "$root/var/lib/lenet/kept" ] && [ -e "$root/etc/lenet/lenetd.toml" ] || fail "removal took state or configuration"
offline dpkg -P lenetd lenetctl >/dev/null 2>&1
[ ! -e "$root/var/lib/lenet" ] && [ ! -e "$root/etc/lenet" ] || fail "purge left state or configuration"
[ -z "$(find "$root/etc/systemd" "$root/var/lib/systemd" -name 'lenetd*' 2>/dev/null)" ] || fail "purge left links"
offline dpkg -i "/debs/lenetd_${version}_amd64.deb" "/debs/lenetctl_${version}_amd64.deb" >/dev/null
[ -L "$root/etc/systemd/system/multi-user.target.wants/lenetd.service" ] || fail "the service is not enabled again"
if [ -e "$root/debs/lenetd-cuda_${version}_amd64.deb" ]; then
  offline dpkg -i "/debs/lenetd-cuda_${version}_amd64.deb" >/dev/null
  # There is no driver, so it goes on with the CPU, and says why.
  has "$(offline lenetd selftest --training 0.2 2>&1 || true)" "no GPU"
  offline dpkg -P lenetd-cuda >/dev/null
fi
offline dpkg -P lenetd lenetctl >/dev/null 2>&1

begin "the start of systemd"
apt install --no-install-recommends systemd systemd-sysv dbus
systemd-nspawn -q --boot -D "$root" --register=no --keep-unit --private-network --link-journal=no \
  --bind-ro=/etc/resolv.conf </dev/null >"$root.console" 2>&1 &
machine=$!
for _ in {1..300}; do
  init=$(pgrep -P "$machine" || true)
  [ -z "$init" ] || [ ! -e "/proc/$init/root/run/systemd/private" ] || break
  sleep 0.1
done
[ -n "$init" ] || { cat "$root.console" >&2; fail "systemd-nspawn has started nothing"; }
rm -f "$root.console"
inside() {
  nsenter -t "$init" -a env -i DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@" \
    </dev/null
}
until inside systemctl is-system-running 2>/dev/null | grep -qE '^(running|degraded)'; do sleep 0.2; done
property() { inside systemctl show -P "$1" "${2:-lenetd.service}"; }
# Waits until what the command prints has the word.
await() {
  local word=$1
  shift
  for _ in {1..1200}; do
    [[ $(inside "$@" 2>/dev/null || true) != *"$word"* ]] || return 0
    sleep 0.1
  done
  fail "no '$word' from: $*: $(inside "$@" 2>&1)"
}
drop_in() {
  mkdir -p "$root/etc/systemd/system/lenetd.service.d"
  printf '[Service]\n%s\n' "$1" >"$root/etc/systemd/system/lenetd.service.d/test.conf"
  inside systemctl daemon-reload
}
# On all devices, so that a second one waits.
submit() { inside lenetctl submit --detach --epochs 6 --checkpoint-seconds 3600; }
weights() { inside lenetctl show "$1" --json | grep -o '"weights_checksums":\[[^]]*'; }
attempts() { inside lenetctl show "$1" --json | grep -o '"attempt":[0-9]*' | head -n 1; }

# The running and the queued job, as if nothing had happened; the first in a second attempt.
both_end_as_expected() {
  local job
  for job in "$running" "$queued"; do
    await '"state":"SUCCEEDED"' lenetctl show "$job" --json
    same "$(weights "$job")" "$expected" "weights"
  done
  same "$(attempts "$running") $(attempts "$queued")" '"attempt":2 "attempt":1'
}

begin "a first installation starts the service"
inside dpkg -i "/debs/lenetd_${version}_amd64.deb" "/debs/lenetctl_${version}_amd64.deb" >/dev/null
same "$(property ActiveState) $(property UnitFileState)" "active enabled"
has "$(inside systemctl status --no-pager lenetd)" "serving on"
socket=/run/lenet/lenetd.sock
same "$(inside stat -c '%U:%G %a' $socket)" "lenet:lenet 660"
has "$(inside journalctl -u lenetd -o cat --no-pager)" "serving on unix:$socket"
exposure=$(inside systemd-analyze security --no-pager lenetd.service |
  sed -n 's/.*exposure level for lenetd.service: \([0-9.]*\).*/\1/p')
echo "systemd-analyze security: $exposure"
awk -v exposure="$exposure" 'BEGIN {exit !(exposure > 0 && exposure <= 3.0)}' || fail "the sandbox is open: $exposure"

begin "a stop saves the job, and a start goes on with the queue"
whole=$(submit)
await '"state":"SUCCEEDED"' lenetctl show "$whole" --json
expected=$(weights "$whole")
has "$(inside journalctl "LENET_JOB=$whole" -p info -o cat --no-pager)" "job $whole: SUCCEEDED"
running=$(submit)
queued=$(submit)
await '"step":' lenetctl show "$running" --json
began=$SECONDS
inside systemctl stop lenetd
same "$(property ActiveState) $(property Result)" "inactive success"
[ $((SECONDS - began)) -lt 40 ] || fail "the stop took $((SECONDS - began)) s"
has "$(find "$root/var/lib/lenet/jobs/$running" -name '*.safetensors')" step-
inside systemctl start lenetd
both_end_as_expected

begin "an upgrade over a running and a queued job"
running=$(submit)
queued=$(submit)
await '"step":' lenetctl show "$running" --json
before=$(property MainPID)
inside dpkg -i "/next/lenetd_${next}_amd64.deb" "/next/lenetctl_${next}_amd64.deb" >/dev/null
[ "$(property MainPID)" != "$before" ] || fail "the upgrade did not restart the service"
same "$(property ActiveState)" active
both_end_as_expected

begin "the watchdog"
drop_in $'WatchdogSec=4s\nTimeoutAbortSec=2s\nRestartSec=1s'
inside systemctl restart lenetd
inside kill -STOP "$(property MainPID)"
await 1 systemctl show -P NRestarts lenetd
await ActiveState=active systemctl show lenetd
has "$(inside journalctl -u lenetd -o cat --no-pager)" "Watchdog timeout"
inside lenetctl list >/dev/null

begin "the socket starts the service"
inside systemctl disable --now lenetd.service 2>/dev/null
drop_in ""
inside systemctl enable --now lenetd.socket 2>/dev/null
same "$(property ActiveState)" inactive
has "$(inside lenetctl list)" "$queued"
await ActiveState=active systemctl show lenetd
inside usermod -aG lenet tester
inside runuser -u tester -- lenetctl list >/dev/null || fail "the group is kept out"
! inside runuser -u nobody -- lenetctl list 2>/dev/null || fail "others get in"
inside dpkg -i "/next/lenetd_${next}_amd64.deb" >/dev/null
same "$(property ActiveState lenetd.socket) $(property UnitFileState lenetd.socket) $(property UnitFileState)" \
  "active enabled disabled" "an upgrade changed what is enabled"
inside lenetctl list >/dev/null

begin "removal, purge and reinstallation"
inside dpkg -r lenetd >/dev/null 2>&1
same "$(inside systemctl is-active lenetd.service lenetd.socket || true)" $'inactive\ninactive'
[ -s "$root/var/lib/lenet/lenetd.db" ] && [ ! -e "$root/usr/bin/lenetd" ] || fail "removal"
# The socket comes back, because it was enabled.
inside dpkg -i "/debs/lenetd_${version}_amd64.deb" >/dev/null
has "$(inside lenetctl list)" "$queued"
inside dpkg -P lenetd >/dev/null 2>&1
[ ! -e "$root/var/lib/lenet" ] && [ ! -e "$root/etc/lenet" ] && [ ! -e "$root/run/lenet" ] || fail "purge"
rm -r "$root/etc/systemd/system/lenetd.service.d"
inside systemctl daemon-reload
inside dpkg -i "/debs/lenetd_${version}_amd64.deb" >/dev/null
same "$(property ActiveState) $(property UnitFileState) $(property UnitFileState lenetd.socket)" \
  "active enabled disabled"

part=end
echo "packages: all passed in $SECONDS s"
