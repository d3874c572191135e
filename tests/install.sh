#!/usr/bin/env bash
# What `cmake --install` leaves works without the source tree: what only the installed folder holds
# is found, and every program says its version.
#   tests/install.sh CMAKE BUILD VERSION
set -euo pipefail
cmake=$1 build=$2 version=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "install.sh: $*" >&2; exit 1; }

"$cmake" --install "$build" --prefix "$scratch/first" >/dev/null
mv "$scratch/first" "$scratch/moved"  # no path of the installation is compiled in
prefix=$scratch/moved data=$scratch/moved/share/stallcast
cd "$scratch"
unset STALLCAST_PROFILES
export XDG_CACHE_HOME=$scratch/cache

for program in stallcast stallcast-gpu stallcast-gui; do
  [ -x "$build/bin/$program" ] || continue
  "$prefix/bin/$program" --version | grep -qF "$version" || fail "$program --version lacks $version"
  page=$prefix/share/man/man1/$program.1
  grep -q '^\.SH NAME' "$page" && grep -q '^\.SH SYNOPSIS' "$page" || fail "$page is no man page"
done
[ -s "$prefix/share/man/man1/stallcast-predict.1" ] || fail "no man page of stallcast predict"

# A machine that the source tree does not have, and samples and papers that only it has.
sed "s/^name = .*/name = 'only-here'/" "$data/models/hardware/h200.toml" \
  >"$data/models/hardware/only-here.toml"
"$prefix/bin/stallcast" trim sample:8k -o small.kvt --steps 4 >/dev/null
"$prefix/bin/stallcast" predict small.kvt --method full --steps 2 --machine only-here \
  --format csv >out.csv
[ "$(grep -c only-here out.csv)" -eq 1 ] || fail "not one row of one machine: $(cat out.csv)"
rm "$data/traces/samples/qwen-8k.kvt"
! "$prefix/bin/stallcast" trim sample:8k -o none.kvt 2>sample.txt || fail "a sample of the source tree was found"
grep -qF "$data" sample.txt || fail "the error does not say where the sample is missing: $(cat sample.txt)"
for paper in "$data"/models/papers/*.toml; do
  [ "$(basename "$paper")" = freekv.toml ] || rm "$paper"
done
! "$prefix/bin/stallcast" reproduce --paper louiskv 2>papers.txt || fail "a paper of the source tree was found"
grep -q freekv papers.txt || fail "no paper was found: $(cat papers.txt)"

library=$(find "$prefix" -name libstallcast_capture.so)
[ -n "$library" ] || fail "the Python package has no library"
if command -v python3 >/dev/null; then
  # Its own libraries are found beside it. (The package itself needs torch.)
  python3 -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1]).stallcast_abi_version()' "$library"
fi
export PYTHONPATH=$(dirname "$(dirname "$library")")
if python3 -c 'import stallcast' 2>/dev/null; then  # where it is built, for this interpreter
  python3 -c 'import stallcast; assert "only-here" in stallcast.machines()' ||
    fail "the Python package does not read installed files"
fi
unset PYTHONPATH
if [ -x "$prefix/bin/stallcast-gpu" ]; then
  "$prefix/bin/stallcast-gpu" record -o recording.kvt -- true >record.txt 2>&1 || true
  ! grep -q 'not found' record.txt || fail "$(cat record.txt)"
fi
if [ -x "$prefix/bin/stallcast-gui" ]; then
  desktop=$prefix/share/applications/stallcast-gui.desktop
  icon=$(sed -n 's/^Icon=//p' "$desktop")
  [ -s "$prefix/share/icons/hicolor/scalable/apps/$icon.svg" ] || fail "no icon $icon"
  QT_QPA_PLATFORM=offscreen "$prefix/bin/stallcast-gui" --screenshot window.png
  [ -s window.png ] || fail "the window did not open the shipped sample"
fi
echo "installed files work"
