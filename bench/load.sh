#!/usr/bin/env bash
# How long loading takes when the files are in the page cache: open, check, lay out the weights, read the tokenizer.
#   bench/load.sh MODEL [RUNS]     $SEXTANT_BIN is the program (default build/release/sextant)
set -euo pipefail
model=${1:?usage: bench/load.sh MODEL [RUNS]}
program=${SEXTANT_BIN:-$(dirname "$0")/../build/release/sextant}
for ((run = 0; run <= ${2:-5}; run++)); do
  "$program" run "$model" Hi --max-tokens 1 --json | sed -n 's/.*"load_s": *\([0-9.]*\).*/\1/p'
done | tail -n +2 | sort -n | awk '{ s[NR] = $1 } END { printf "%d loads: best %.3f s, median %.3f s, worst %.3f s\n", NR, s[1], s[int((NR + 1) / 2)], s[NR] }'
