#!/bin/sh
# Waits until the NVIDIA driver's devices are there, where the host has such a GPU and the driver's kernel module; else
# ends at once. Always succeeds but for a bad command line: without GPUs lenetd trains on the CPU.
set -u

usage() {
  cat <<'END'
Usage: wait-for-nvidia [--timeout SECONDS] [--root FOLDER]
  --timeout SECONDS   the longest wait (60)
  --root FOLDER       of the host's /sys and /dev, for tests
END
}

timeout=60
root=
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --timeout | --root)
      [ $# -ge 2 ] || { usage >&2; exit 2; }
      if [ "$1" = --timeout ]; then timeout=$2; else root=$2; fi
      shift 2
      ;;
    *) usage >&2; exit 2 ;;
  esac
done
case "$timeout" in
  '' | *[!0-9]*) usage >&2; exit 2 ;;
esac

has_gpu() {
  grep -qsx 0x10de "$root"/sys/bus/pci/devices/*/vendor
}

has_driver() {
  [ -e "$root/sys/module/nvidia" ] || { [ -z "$root" ] && modinfo nvidia >/dev/null 2>&1; }
}

has_devices() {
  [ -e "$root/dev/nvidiactl" ] && [ -e "$root/dev/nvidia-uvm" ]
}

has_devices && exit 0
has_gpu && has_driver || exit 0

# Comes with the driver; loads the modules and makes the device files, also where udev does not.
[ -n "$root" ] || ! command -v nvidia-modprobe >/dev/null || nvidia-modprobe -c 0 -u

waited=0
while ! has_devices; do
  if [ "$waited" -ge "$timeout" ]; then
    echo "/dev/nvidiactl and /dev/nvidia-uvm have not come within $timeout s" >&2
    exit 0
  fi
  sleep 1
  waited=$((waited + 1))
done
