#!/usr/bin/env bash
# Times the training step beside PyTorch's and JAX's on this machine's first GPUs, one after the other, and prints one
# table. Where one of them is not installed its column stays empty, and so does JAX's for several ranks; PyTorch's are
# then DistributedDataParallel's, and batches those of a rank.
#
# Usage: tests/bench/compare.sh BENCH_STEP [BATCH,... [RANKS]]
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
bench_step=$1
batches=${2:-8,64,512,4096}
ranks=${3:-1}
peers=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/peers

time_ours() {
  "$bench_step" --backend cuda --ranks "$ranks" --batch "$batches" --steps 2048 --chunk 32
}
ours=$(time_ours)
layered=$(LENET_CUDA_TUNING=engine=layered time_ours)
torch=$(python3 "$peers/pytorch_step.py" --device cuda --ranks "$ranks" --batch "$batches") || torch=
jax=
[ "$ranks" -gt 1 ] || jax=$(python3 "$peers/jax_step.py" --batch "$batches") || jax=

# column TEXT NAME BATCH: microseconds a step in the line that begins with NAME and has BATCH next.
column() {
  awk -v name="$2" -v batch="$3" '$1 == name && $2 == batch {print $3; exit}' <<<"$1"
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1
for text in "$torch" "$jax"; do [ -z "$text" ] || head -n 1 <<<"$text"; done
echo "ranks: $ranks; microseconds a training step; ratio: the best of the others over auto"
printf '%6s %9s %9s %14s %14s %9s %7s\n' batch auto layered "PyTorch eager" "PyTorch graph" "JAX scan" ratio
for batch in ${batches//,/ }; do
  auto=$(column "$ours" "$ranks" "$batch")
  eager=$(column "$torch" eager "$batch")
  graph=$(column "$torch" graph "$batch")
  scan=$(column "$jax" scan "$batch")
  best=$(printf '%s\n' "$eager" "$graph" "$scan" | { grep . || true; } | sort -g | head -n 1)
  ratio=
  [ -z "$best" ] || ratio=$(awk -v best="$best" -v auto="$auto" 'BEGIN {printf "%.1f", best / auto}')
  printf '%6s %9s %9s %14s %14s %9s %7s\n' "$batch" "$auto" "$(column "$layered" "$ranks" "$batch")" \
    "$eager" "$graph" "$scan" "$ratio"
done
