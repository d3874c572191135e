#!/usr/bin/env bash
# The kernels' tests under compute-sanitizer's tools, in parts beside one another, on the GPU of
# this machine, into a results file.
#   tests/kernels/sanitize.sh BUILD/bin RESULTS.txt [FILTER [TOOL...]]
# FILTER as GoogleTest has it; else all tests, but those of whole prompts by memcheck alone, and
# without libraries' products by racecheck. Exit status 1 where a tool found anything or a test
# failed.
set -euo pipefail
if [ $# -lt 2 ]; then
  sed -n '2,7s/^# *//p' "$0"
  exit 2
fi
bin=$1 results=$2 filter=${3:-}
tools=("${@:4}")
[ ${#tools[@]} -gt 0 ] || tools=(memcheck racecheck synccheck)
[ -x "$bin/test_kernels" ] || {
  echo "sanitize.sh: $bin/test_kernels is missing: ./dev build makes it, with a CUDA toolkit" >&2
  exit 1
}
"$bin/test_kernels" --gtest_list_tests --gtest_filter="${filter:-*}" 2>/dev/null | grep -q '^  ' || {
  echo "sanitize.sh: no test is called like '$filter': $bin/test_kernels --gtest_list_tests lists them" >&2
  exit 1
}
command -v compute-sanitizer >/dev/null || {
  echo "sanitize.sh: no compute-sanitizer on the PATH: it comes with the CUDA toolkit" >&2
  exit 1
}
nvidia-smi >/dev/null 2>&1 || {
  echo "sanitize.sh: no GPU here: run it on a machine with one and its driver" >&2
  exit 1
}

exec > >(tee "$results") 2>&1
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader |
  sed -E "s/(.*), (.*)/The kernels' tests under compute-sanitizer on one \1, driver \2/" | head -n 1
compute-sanitizer --version | sed -nE 's/^Version ([0-9.]+).*/compute-sanitizer \1/p'
date -u +%F
echo "Command: tests/kernels/sanitize.sh $*"
outputs=$(mktemp -d)
trap 'rm -rf "$outputs"' EXIT
shards=4
filter_of() {
  # A tool runs one kernel at a time: none is seen beside another.
  local without=FastStreams.AreAsManyAsAskedForAndRunBesideOneAnother
  [ "$1" = memcheck ] || without+=:PrefillRun.*
  # Of cuBLASLt's kernels it reports races, with cuSOLVER's it is not done in five minutes.
  [ "$1" != racecheck ] || without+=:Decoder.Gemm*:ShadowKv.Factors*
  echo "${filter:-*-$without}"
}
for tool in "${tools[@]}"; do
  for ((shard = 0; shard < shards; ++shard)); do
    (
      begin=$SECONDS status=0 output=$outputs/$tool.$shard
      GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard \
        compute-sanitizer --tool "$tool" --error-exitcode 3 "$bin/test_kernels" --gtest_brief=1 \
        --gtest_filter="$(filter_of "$tool")" >"$output" 2>&1 || status=$?
      echo "$tool, part $((shard + 1)): exit status $status, $((SECONDS - begin)) s" >>"$output"
    ) &
  done
done
failed=0
for tool in "${tools[@]}"; do
  printf '\n$ compute-sanitizer --tool %s test_kernels --gtest_filter=%s\n' "$tool" \
    "$(filter_of "$tool")"
  for ((shard = 0; shard < shards; ++shard)); do
    output=$outputs/$tool.$shard
    until grep -q "^$tool, part .*: exit" "$output" 2>/dev/null; do sleep 0.2; done
    # What was found, and the sums.
    grep -E "^========= [^C]|FAILED|PASSED|^$tool, part" "$output"
    grep -q "^$tool, part .*: exit status 0," "$output" || failed=1
  done
done
exit $failed
