#!/usr/bin/env bash
# Runs a command so that the CUDA plug-in finds this machine's CUDA, cuDNN 9 and NCCL 2: where the system's loader
# looks, in the CUDA Toolkit's folder, or in Python's nvidia packages.
#
# Usage: with-cuda.sh COMMAND [ARGUMENT...]
set -euo pipefail

[ $# -gt 0 ] || { echo "Usage: with-cuda.sh COMMAND [ARGUMENT...]" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
plugin=$here/lib/lenet/liblenet_cuda.so

# Names of the libraries that the loader does not find for the plug-in.
missing() {
  ldd "$plugin" 2>/dev/null | awk '/not found/ {print $1}'
}

candidates() {
  printf '%s\n' ${CUDA_HOME:+"$CUDA_HOME/lib64"} /usr/local/cuda/lib64 /usr/local/cuda-13*/lib64
  command -v python3 >/dev/null || return 0
  python3 - <<'EOF'
import glob, os, sys
for path in sys.path:
    for folder in sorted(glob.glob(os.path.join(path or ".", "nvidia", "*", "lib"))):
        print(folder)
EOF
}

if [ -e "$plugin" ] && [ -n "$(missing)" ]; then
  mapfile -t folders < <(candidates)
  while read -r name; do
    for folder in "${folders[@]}"; do
      if [ -e "$folder/$name" ]; then
        export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
        break
      fi
    done
  done < <(missing)
  absent=$(missing)
  [ -z "$absent" ] ||
    echo "with-cuda: not found: ${absent//$'\n'/ }; looked in the system's folders and in: ${folders[*]}" >&2
fi
exec "$@"
