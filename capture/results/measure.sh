#!/usr/bin/env bash
# Measures what this folder's pages show, on the GPU of this machine: calibrates it, then runs every
# method beside its prediction. Sections are independent of each other, but all need `calibrate`, and
# some the traces of `synth`.
set -euo pipefail

sections=(calibrate grid switches louiskv-prkv pariskv-wgkv hisparse-cpu shadowkv qwen background prefill
  recordings synth long moe)
if [ $# -lt 2 ]; then
  cat <<HELP
usage: capture/results/measure.sh FOLDER NAME [SECTION...]
  Writes FOLDER/NAME.toml, the machine's profile, and FOLDER/NAME-runs.csv, NAME-prompts.csv and
  NAME-recordings.csv, predicted and measured, to be read by capture/results/report.py FOLDER NAME.
  The section moe writes NAME-moe.csv; it takes 64 GB of device and 27 GB of pinned memory.
  A run that fails is said and left out. The exit status is then 1. The same call again repeats
  nothing that is there.
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
failed=0 beside=

# run FILE ARGUMENTS...: appends to FOLDER/NAME-FILE.csv, unless an earlier call has. The first
# column says what others copied to the GPU meanwhile, in GB/s.
run() {
  local csv=$folder/$name-$1.csv start=$SECONDS rows titles asked="$*" status=0
  shift
  if [ -s "$finished" ] && grep -qxF -e "$asked" "$finished"; then
    echo "   done: run $*"
    return
  fi
  rows=$("$bin/stallcast-gpu" run "$@" --machine "$profile" --format csv) || status=$?
  # A row without times says why; those with times are kept.
  if grep ',,,' <<<"$rows" >&2 || [ $status -ne 0 ]; then
    echo "measure.sh: a part failed: run $*" >&2
    failed=1
  fi
  if grep -qv ',,,' < <(tail -n +2 <<<"$rows"); then
    titles=background_h2d_gb_per_s,${rows%%$'\n'*}
    [ -s "$csv" ] || echo "$titles" >"$csv"
    if [ "$(head -n 1 "$csv")" = "$titles" ]; then
      tail -n +2 <<<"$rows" | grep -v ',,,' | sed "s/^/$beside,/" >>"$csv"
      echo "$asked" >>"$finished"
    else
      echo "measure.sh: $csv has other columns than: run $*; move it away" >&2
      failed=1
    fi
  fi
  printf '%4d s: run %s\n' $((SECONDS - start)) "$*"
}
# Steps of the first model; as many as the 32K trace has for a batch of four.
decode() { run runs "$@" --model $model --steps 16; }

synthesize() {
  local trace=$folder/traces/$1.kvt
  shift
  [ -s "$trace" ] || "$bin/stallcast" synth "$trace" "$@" >/dev/null
}

measure_calibrate() {
  [ -s "$profile" ] || "$bin/stallcast-gpu" calibrate --name "$name" --out "$profile"
}

measure_synth() {
  synthesize synth-64k --prompt 64K --steps 256 --layers 2 --model $model
  # Keys of a rank that the shipped traces, of two KV heads, cannot have.
  synthesize rotated-128k --prompt 128K --steps 32 --layers 2 --model $model --rotate
  synthesize rotated-400k --prompt 400000 --steps 32 --layers 1 --model $model --rotate
}

measure_grid() {
  local trace
  for trace in "$t8" "$t32"; do
    decode "$trace" --method full -g batch=1,4 --repeat 3
    decode "$trace" --method quest,arkvale,freekv -g batch=1,4 -g budget=1280,2048 --repeat 3
    decode "$trace" --method arkvale-freekv -g batch=1,4 --budget 2048 --repeat 3
    decode "$trace" --method offload -g batch=1,4 --repeat 2
  done
}

measure_switches() {
  local value
  decode "$t32" --method freekv -g recall=batched,staged,zero-copy --repeat 3
  for value in correction=off double_buffer=off speculation=off tau=0.9; do
    decode "$t32" --method freekv -p $value --repeat 3
  done
  decode "$t32" --method freekv -p layout=nhd --repeat 1
  decode "$t32" --method freekv -p recall=zero-copy -p correction=off --graph --repeat 3
  decode "$t32" --method full,streaming,quest --graph --repeat 3
}

measure_qwen() {
  run runs "$t8" --model qwen2.5-7b --method full,quest,arkvale,arkvale-freekv,freekv \
    --budget 2048 -g batch=1,4 --steps 24 --repeat 3
  run runs "$t32" --model qwen2.5-7b --method full,quest,arkvale,freekv \
    --budget 2048 -g batch=1,4 --steps 24 --repeat 3
}

measure_louiskv-prkv() {
  local trace value
  for trace in "$t8" "$t32"; do
    decode "$trace" --method louiskv,prkv -g batch=1,4 -g budget=1024,2048 --repeat 3
  done
  decode "$t32" --method louiskv -p trigger=every-token --repeat 3
  for value in units=pages group=query-head recall=staged; do
    decode "$t32" --method louiskv -p $value --repeat 3
  done
  for value in layout=nhd transfer=per-page async_write_back=off; do
    decode "$t32" --method prkv -p $value --repeat 3
  done
}

measure_pariskv-wgkv() {
  local trace
  for trace in "$t8" "$t32"; do
    decode "$trace" --method pariskv,wgkv,wgkv-quest,wgkv-snapkv -g batch=1,4 --repeat 3
  done
}

measure_hisparse-cpu() {
  local trace
  for trace in "$t8" "$t32"; do
    run hisparse-cpu "$trace" --model $model --steps 16 --method hisparse,cpu-attention,snapkv \
      -g batch=1,4 --repeat 3
  done
  run hisparse-cpu "$t32" --model $model --steps 16 --method hisparse -g buffer=2560,8192 --repeat 3
  run hisparse-cpu "$t32" --model $model --steps 16 --method cpu-attention -g threads=4,8 --repeat 3
}

measure_shadowkv() {
  local trace
  for trace in "$t8" "$t32"; do
    decode "$trace" --method shadowkv -g batch=1,4 -g budget=1024,2048 --repeat 3
  done
}

# To 400,000 tokens, on synthetic traces; prompts of minutes, once each.
measure_long() {
  local trace=$folder/traces/rotated
  decode "$t64" --method full,quest,freekv,prkv --budget 2048 --repeat 3
  decode "$trace-128k.kvt" --method full,wgkv,pariskv --repeat 2
  run prompts "$trace-400k.kvt" --model $model --steps 24 --method full,wgkv --prefill --repeat 1
}

# Experts and windows. The shipped traces have no heads of 64 channels, so gpt-oss has its own.
measure_moe() {
  local few=(--method full,quest,freekv -g batch=1,8 --steps 8 --repeat 3 --weight-dtype bf16)
  local prompt
  run moe "$t8" "$t32" --model qwen3-30b-a3b "${few[@]}"
  for prompt in 8K 32K; do
    synthesize gpt-oss-$prompt --prompt $prompt --steps 64 --layers 2 --model gpt-oss-20b \
      --local-window 256
  done
  run moe "$folder/traces/gpt-oss-8K.kvt" "$folder/traces/gpt-oss-32K.kvt" --model gpt-oss-20b \
    "${few[@]}"
}

measure_prefill() {
  local few=(--model $model --steps 4 --repeat 2 --prefill)
  run prompts "$t8" "${few[@]}" \
    --method full,quest,arkvale,freekv,offload,louiskv,prkv,pariskv,wgkv,wgkv-quest,shadowkv
  run prompts "$t8" "${few[@]}" --batch 4 --method full,quest,freekv,pariskv,wgkv
  run prompts "$t32" "${few[@]}" --method full,freekv,louiskv,prkv,pariskv,wgkv
}

measure_background() {
  for beside in 10 20; do
    local rate=(--set background.h2d=${beside}GB/s --repeat 3)
    decode "$t32" --method freekv "${rate[@]}"
    decode "$t32" --method freekv -p recall=zero-copy "${rate[@]}"
    decode "$t32" --method offload,arkvale "${rate[@]}"
  done
  beside=
}

# Timelines of four steps, such as traces/measured has.
measure_recordings() {
  record() {
    run recordings "$t8" "$@" --model $model --steps 4 --repeat 2 --no-check \
      --timelines "$folder/timelines"
  }
  record --method full,offload,quest,arkvale,arkvale-freekv,freekv,louiskv,prkv,pariskv,wgkv,wgkv-quest
  record --method freekv -p recall=zero-copy
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
