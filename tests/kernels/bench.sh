#!/usr/bin/env bash
# Our kernels and PyTorch's beside them, in one run, into a results file.
#   tests/kernels/bench.sh BUILD/bin RESULTS.txt
set -euo pipefail
bin=$1 results=$2 here=$(dirname "$0")

exec > >(tee "$results") 2>&1
nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.max,pcie.link.width.max \
  --format=csv,noheader |
  sed -E "s/(.*), (.*), (.*), (.*)/Kernels on one \1 (PCIe \3 x\4), driver \2/" | head -n 1
echo "$(. /etc/os-release && echo "$PRETTY_NAME"), $(date -u +%F)"
echo "Command: tests/kernels/bench.sh $bin $results"
for subject in decode_attention selection prefill_attention movement decoder clusters restructure \
  pariskv shadowkv wgkv; do
  printf '\n$ bench_%s\n' "$subject"
  "$bin/bench_$subject"
done
if python3 -c 'import torch' 2>/dev/null; then
  read_rate=$(sed -n 's/^read bandwidth.*: \([0-9]*\) GB\/s/\1/p' "$results" | head -n 1)
  printf '\n$ %s\n' "peers_decoder.py $read_rate"
  python3 "$here/peers_decoder.py" "$read_rate"
  for peers in peers peers_pw; do
    printf '\n$ %s.py\n' "$peers"
    python3 "$here/$peers.py"
  done
  printf '\n$ claims.py\n'
  python3 "$here/claims.py" "$results"
fi
