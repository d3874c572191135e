"""Published speed-ups of kernels over PyTorch beside what one run of the benchmarks gives.

    python3 tests/kernels/claims.py RESULTS.txt

Reads the rows that bench_pariskv, bench_wgkv and peers_pw.py have printed into a file. What misses
its claim says what a kernel would reach that ran at the limit which our row names its share of:
memory, link or tensor cores.
"""

import re
import sys
from typing import NamedTuple

ROW = re.compile(r"^(?P<name>\S.*?) +(?P<us>[\d.]+) us +[\d.]+ (?:MB|TF) +\d+ (?:GB|TF)/s"
                 r"(?: +(?P<share>[\d.]+) %)?$")


class Row(NamedTuple):
    seconds: float
    share: float  # of the limit


class Claim(NamedTuple):
    what: str
    ours: str      # the fastest row that matches counts
    peer: str
    least: float   # published; 0: nothing is
    source: str


CLAIMS = [
    Claim("collision, 256K", r"8 x 262144: collision scores", "8 x 262144: collision scores", 9.2,
          "ParisKV D.2"),
    *(Claim(f"rerank, {tokens // 1024}K", rf"8 x {tokens}: rerank", f"8 x {tokens}: rerank", 4,
            "ParisKV D.2: 3-4 x") for tokens in (16384, 32768, 131072, 262144)),
    Claim("bucket top-k, 16K", r"8 x 16384: bucket top-k", "8 x 16384: bucket top-k", 9.4,
          "ParisKV D.2: up to 9.4 x"),
    *(Claim(f"UVA fetch, {k} a head, {layout}", rf"fetch 8 x {k} {layout}, \d+ blocks",
            f"fetch 8 x {k} {layout}, {peer}", 40, "ParisKV D.2: about 40 x")
      for k in (100, 1000)
      for layout, peer in (("split", "framework gather"), ("joined", "framework gather"))),
    *(Claim(f"sparse prefill, {tokens:,}", f"prefill, {tokens} tokens, 25 % admitted",
            f"dense prefill, {tokens} tokens, cudnn", least, source)
      for tokens, least, source in ((32768, 0, ""), (131072, 0, ""),
                                    (200000, 3.03, "WG-KV 5.3: 3.03-3.45 x, whole prefill"))),
]


def read(path):
    ours, peers, rows = {}, {}, None
    for line in open(path, encoding="utf-8"):
        if line.startswith(("ParisKV;", "WG-KV;")):
            rows = ours
        elif line.startswith("PyTorch "):
            rows = peers
        elif rows is not None and (match := ROW.match(line.rstrip())):
            rows[match["name"]] = Row(float(match["us"]) * 1e-6, float(match["share"] or 0) / 100)
    return ours, peers


def main():
    ours, peers = read(sys.argv[1])
    print(f"{'kernel':<28} {'ours us':>10} {'PyTorch us':>11} {'ratio':>8} {'of limit':>9} "
          f"{'published':>10}")
    for claim in CLAIMS:
        rows = [row for name, row in ours.items() if re.fullmatch(claim.ours, name)]
        peer = peers.get(claim.peer)
        if not rows or peer is None:
            print(f"{claim.what:<28} not in {sys.argv[1]}")
            continue
        best = min(rows)
        ratio = peer.seconds / best.seconds
        line = (f"{claim.what:<28} {best.seconds * 1e6:>10.2f} {peer.seconds * 1e6:>11.2f} "
                f"{ratio:>6.1f} x {100 * best.share:>7.1f} %")
        if claim.least == 0:
            print(line)
        elif ratio >= claim.least:
            print(f"{line} {claim.least:>8.2f} x met ({claim.source})")
        else:
            print(f"{line} {claim.least:>8.2f} x missed by {claim.least / ratio:.2f} x, "
                  f"{ratio / best.share:.1f} x at the limit ({claim.source})")


if __name__ == "__main__":
    main()
