#!/usr/bin/env bash
# Measures what this folder's pages show, on the GPU of this machine: calibrates it, then runs every
# method beside its prediction. Sections are independent of each other, but all need `calibrate`, and
# some the traces of `synth`.
set -euo pipefail

sections=(calibrate synth grid switches overlap qwen louiskv-prkv pariskv-wgkv shadowkv long prefill
  background recordings)
if [ $# -lt 2 ]; then
  cat <<HELP
usage: capture/results/measure.sh FOLDER NAME [SECTION...]
  Writes FOLDER/NAME.toml, the machine's profile, and FOLDER/NAME-*.csv, predicted and measured, to
  be read by capture/results/report.py FOLDER NAME. A run that fails is said and left out; the exit
  status is then 1, and the same call again repeats no other. Synthetic traces take 1.5 GB there.
  Sections, in this order: ${sections[*]}
  STALLCAST_BIN names the folder of stallcast and stallcast-gpu (default: build/bin).
HELP
  exit 2
fi
folder=$(realpath -m "$1") name=$2
shift 2
[ $# -gt 0 ] && sections=("$@")
bin=$(realpath -m "${STALLCAST_BIN:-$(dirname "$0")/../../build/bin}")
cd "$(dirname "$0")/../.."
for program in stallcast stallcast-gpu; do
  [ -x "$bin/$program" ] || {
    echo "measure.sh: $bin/$program is missing: ./dev build makes it, with a CUDA toolkit" >&2
    exit 1
  }
done
mkdir -p "$folder/traces" "$folder/timelines"

profile=$folder/$name.toml
finished=$folder/$name-runs.txt
model=llama-3.1-8b
t8=traces/samples/qwen-8k.kvt t32=traces/samples/qwen-32k.kvt t64=$folder/traces/synth-64k.kvt
failed=0

# run FILE ARGUMENTS...: appends to FOLDER/NAME-FILE.csv, unless an earlier call has.
run() {
  local csv=$folder/$name-$1.csv start=$SECONDS rows titles asked="$*" status=0
  shift
  if [ -s "$finished" ] && grep -qxF -e "$asked" "$finished"; then
    echo "   done: run $*"
    return
  fi
  rows=$("$bin/stallcast-gpu" run "$@" --machine "$profile" --format csv) || status=$?
  # A row without times says why.
  if grep ',,,' <<<"$rows" >&2 || [ $status -ne 0 ]; then
    echo "measure.sh: left out: run $*" >&2
    failed=1
  else
    titles=${rows%%$'\n'*}
    [ -s "$csv" ] || echo "$titles" >"$csv"
    if [ "$(head -n 1 "$csv")" = "$titles" ]; then
      tail -n +2 <<<"$rows" >>"$csv"
      echo "$asked" >>"$finished"
    else
      echo "measure.sh: $csv has other columns than: run $*; move it away" >&2
      failed=1
    fi
  fi
  printf '%4d s: run %s\n' $((SECONDS - start)) "$*"
}
# The same of 24 steps of the first model.
decode() { run "$@" --model $model --steps 24; }

synthesize() {
  local trace=$folder/traces/$1.kvt
  shift
  [ -s "$trace" ] || "$bin/stallcast" synth "$trace" "$@" >/dev/null
}

# What has run knows one profile.
measure_calibrate() {
  [ -s "$profile" ] || "$bin/stallcast-gpu" calibrate --name "$name" --out "$profile"
}

measure_synth() {
  synthesize synth-64k --prompt 64K --steps 256 --layers 2 --model $model
  # Segments as long as LouisKV's paper has them.
  synthesize segments-32k --prompt 32K --steps 256 --layers 2 --segment-length 16 --similarity 0.9 \
    --head-correlation 0.9
  # Keys of a rank that the shipped traces, of two KV heads, cannot have.
  synthesize rotated-8k --prompt 8000 --steps 32 --layers 2 --model $model --rotate
  synthesize rotated-128k --prompt 128K --steps 32 --layers 2 --model $model --rotate
  synthesize rotated-200k --prompt 200000 --steps 32 --layers 1 --model $model --rotate
  synthesize rotated-256k --prompt 256K --steps 32 --layers 1 --model $model --rotate
  synthesize rotated-400k --prompt 400000 --steps 32 --layers 1 --model $model --rotate
}

measure_grid() {
  local trace
  for trace in "$t8" "$t32" "$t64"; do
    decode validation "$trace" --method full -g batch=1,4 --repeat 3
    decode validation "$trace" --method quest,arkvale -g batch=1,4 -g budget=1024,2048 --repeat 3
    decode validation "$trace" --method arkvale-freekv -g batch=1,4 --budget 2048 --repeat 3
    decode validation "$trace" --method freekv -g batch=1,4 -g budget=1024,2048 \
      -p sink=256 -p window=256 --repeat 3
  done
  # All KV crosses the link.
  decode validation "$t8" --method offload -g batch=1,4 --repeat 2
  decode validation "$t32" --method offload -g batch=1,4 --repeat 2
  decode validation "$t64" --method offload --repeat 2
}

measure_switches() {
  local value
  decode validation "$t32" --method freekv --repeat 3
  decode validation "$t32" --method freekv -g recall=batched,staged,zero-copy --repeat 3
  for value in correction=off double_buffer=off speculation=off; do
    decode validation "$t32" --method freekv -p $value --repeat 3
  done
  decode validation "$t32" --method freekv -p layout=nhd --repeat 1
  decode validation "$t32" --method full,streaming,quest --graph --repeat 3
}

# What is called beside a zero-copy gather, by its blocks.
measure_overlap() {
  local gather=(--method freekv -p recall=zero-copy)
  local all=(-p correction=off -g zero_copy_blocks=4,8,16)
  decode overlap "$t32" "${gather[@]}" -p zero_copy_blocks=4 --repeat 3
  decode overlap "$t32" "${gather[@]}" "${all[@]}" --repeat 3
  decode overlap "$t32" "${gather[@]}" "${all[@]}" --graph --repeat 3
  decode overlap "$t32" --method louiskv -g zero_copy_blocks=4,8 --repeat 3
}

measure_qwen() {
  run validation "$t8" --model qwen2.5-7b --method full,quest,arkvale,arkvale-freekv,freekv \
    --budget 2048 -g batch=1,4 --steps 24 --repeat 3
  run validation "$t32" --model qwen2.5-7b --method full,quest,arkvale,freekv \
    --budget 2048 -g batch=1,4 --steps 24 --repeat 3
}

measure_louiskv-prkv() {
  local trace value file=louiskv-prkv-validation
  for trace in "$t8" "$t32"; do
    decode $file "$trace" --method louiskv,prkv -g batch=1,4 -g budget=512,1024,2048 --repeat 3
  done
  decode $file "$t64" --method louiskv,prkv -g budget=512,1024,2048 --repeat 3
  decode $file "$t64" --method louiskv,prkv --budget 2048 --batch 4 --repeat 3
  decode $file "$t32" --method louiskv -g trigger=every-token,stride --repeat 3
  for value in units=pages group=query-head kernel=passes recall=staged pool=paired; do
    decode $file "$t32" --method louiskv -p $value --repeat 3
  done
  decode $file "$t32" --method prkv -g static_ratio=0,1 --repeat 3
  for value in static_rule=overlap layout=nhd transfer=per-page async_write_back=off update=8; do
    decode $file "$t32" --method prkv -p $value --repeat 3
  done
  decode $file "$t32" --method prkv -p layout=nhd -p transfer=per-page --repeat 2
  decode $file "$folder/traces/segments-32k.kvt" --method louiskv --repeat 3
}

measure_pariskv-wgkv() {
  local trace file=pariskv-wgkv-validation
  for trace in "$t8" "$t32"; do
    decode $file "$trace" --method pariskv,wgkv,wgkv-quest -g batch=1,4 --repeat 3
  done
  local evict=(-p capacity=2200 -p evict=snapkv)
  decode $file "$t8" --method wgkv -g batch=1,4 "${evict[@]}" --repeat 3
  decode $file "$t8" --method wgkv -g batch=1,4 "${evict[@]}" -p evict_share=0.02 --repeat 3
}

# The trace must say how its keys were turned: synthetic ones that were not cannot be factorized.
measure_shadowkv() {
  local trace file=shadowkv-validation
  for trace in "$t8" "$t32"; do
    decode $file "$trace" --method shadowkv -g batch=1,4 -g budget=512,1024,2048 --repeat 3
  done
  decode $file "$t32" --method shadowkv -p chunk=32 -p outliers=12 -p local=1 --repeat 3
  decode $file "$folder/traces/rotated-128k.kvt" --method shadowkv --repeat 2
  for trace in "$t8" "$folder/traces/rotated-8k.kvt"; do
    run shadowkv-prefill "$trace" --model $model --steps 4 --repeat 2 --prefill --method shadowkv
  done
}

# To 400,000 tokens; prompts of minutes, once each.
measure_long() {
  local rotated=$folder/traces/rotated steps=pariskv-wgkv-validation prompts=pariskv-wgkv-long
  decode $steps "$rotated-256k.kvt" --method full,wgkv,pariskv --repeat 2
  run $steps "$rotated-128k.kvt" --model $model --method full,wgkv,pariskv --batch 4 --steps 8 \
    --repeat 2
  decode $prompts "$rotated-128k.kvt" --method full,wgkv,wgkv-quest,pariskv --prefill --repeat 1
  decode $prompts "$rotated-200k.kvt" --method full,wgkv --prefill --repeat 1
  decode $prompts "$rotated-400k.kvt" --method full,wgkv --prefill --repeat 1
}

measure_prefill() {
  local few=(--model $model --steps 4 --repeat 2 --prefill)
  run prefill-validation "$t8" "${few[@]}" \
    --method full,quest,arkvale,freekv,offload,louiskv,prkv,pariskv,wgkv,wgkv-quest
  run prefill-validation "$t8" "${few[@]}" --batch 4 --method full,quest,freekv,pariskv,wgkv
  run prefill-validation "$t32" "${few[@]}" --method full,freekv,louiskv,prkv,pariskv,wgkv
}

measure_background() {
  local rate
  for rate in 10 20; do
    local beside=(--set background.h2d=${rate}GB/s --repeat 3)
    decode background-$rate "$t32" --method freekv "${beside[@]}"
    decode background-$rate "$t32" --method freekv -p recall=zero-copy "${beside[@]}"
    decode background-$rate "$t32" --method offload,arkvale "${beside[@]}"
  done
}

# Timelines too; the first ones, of four steps, are those that traces/measured has.
measure_recordings() {
  local all=arkvale,arkvale-freekv,freekv,louiskv,prkv,pariskv
  local few=(--repeat 2 --no-check)
  of() { run recordings "$@" "${few[@]}" --steps 8 --timelines "$folder/timelines"; }
  record() { of "$@" --model $model; }
  of_four() {
    run recordings-small "$t8" "$@" "${few[@]}" --model $model --steps 4 \
      --timelines "$folder/timelines/small"
  }
  of_four --method full,offload,quest,wgkv,wgkv-quest,$all
  of_four --method freekv -p recall=zero-copy
  record "$t8" --method $all,offload
  record "$t32" --method $all,quest -g batch=1,4
  record "$t32" --method freekv -p recall=zero-copy -g batch=1,4
  record "$t32" --method freekv -p recall=zero-copy -p correction=off
  record "$t32" --method freekv -p recall=zero-copy -p correction=off -p zero_copy_blocks=4
  record "$t32" --method freekv -p recall=staged
  record "$t32" --method louiskv -p recall=staged
  record "$t64" --method freekv -g batch=1,4 --budget 2048 -p sink=256 -p window=256
  record "$folder/traces/rotated-128k.kvt" --method pariskv,shadowkv
  record "$folder/traces/rotated-256k.kvt" --method pariskv
  record "$t32" --method shadowkv --batch 4
  record "$t32" --method freekv -p recall=batched
  record "$t32" --method freekv -p correction=off
  record "$t32" --method louiskv -p zero_copy_blocks=4
  of "$t32" --model qwen2.5-7b --method quest,arkvale --batch 4
}

for section in "${sections[@]}"; do
  declare -F "measure_$section" >/dev/null || {
    echo "measure.sh: no section '$section'; called without arguments it lists them" >&2
    exit 2
  }
done
for section in "${sections[@]}"; do
  [ "$section" = synth ] || [ "$section" = calibrate ] || [ -s "$profile" ] || {
    echo "measure.sh: $profile is missing: run the section calibrate first" >&2
    exit 1
  }
  echo "== $section"
  "measure_$section"
done
exit $failed
