#!/usr/bin/env python3
"""PyTorch's kernels for the stages of a decoder, as rows of our benchmarks' tables.

Timed as ours are: launches in a CUDA graph, medians, over inputs that rotate beyond L2. Argument:
the read rate in GB/s that bench_decode_attention measured, of which shares are taken.
"""
import math
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

HEADS, GROUP, DIM = 8, 4, 128
SCALE = 1 / math.sqrt(DIM)
BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def median_seconds(work, trials):
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    seconds = []
    for _ in range(trials):
        start.record()
        work()
        stop.record()
        stop.synchronize()
        seconds.append(start.elapsed_time(stop) * 1e-3)
    return statistics.median(seconds)


def in_graph(work, count, trials=21):
    """Median seconds of work(i), i = 0 to count - 1 being one graph."""
    for i in range(min(count, 3)):
        work(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            work(i)
    graph.replay()
    return median_seconds(graph.replay, trials) / count


def in_stream(work, count, trials=15):
    """Median seconds of work(i) among `count` that follow one another, launches included."""

    def batch():
        for i in range(count):
            work(i)

    batch()
    return median_seconds(batch, trials) / count


def random(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def attention(query, key, value, backend, **options):
    with sdpa_kernel(BACKENDS[backend]):
        return F.scaled_dot_product_attention(query, key, value, scale=SCALE, **options)


def decode_attention(read_rate):
    print(f"{'kind':<8} {'layout':<6} {'page':>5} {'batch':>6} {'tokens':>8} | {'MiB':>8} "
          f"{'stream us':>9} | {'graph us':>8} {'GB/s':>8} {'share':>6}")
    for batch, tokens in [(1, 2048), (1, 8192), (1, 32768), (1, 131072), (4, 32768), (8, 32768),
                          (4, 2048)]:
        data = 2 * 2 * batch * HEADS * tokens * DIM
        turns = max(1, min(16, (4 << 30) // data))
        kv = [random(2, batch, HEADS, tokens, DIM) for _ in range(turns)]
        # As many query heads as there are; and with the group in place of query tokens.
        apart = random(batch, HEADS * GROUP, 1, DIM)
        grouped = apart.view(batch, HEADS, GROUP, DIM)
        for name in BACKENDS:
            for kind, query, options in [(name, apart, {"enable_gqa": True}),
                                         (name + "-g", grouped, {})]:
                def work(i):
                    return attention(query, *kv[i % turns], name, **options)

                stream, graph = in_stream(work, 16), in_graph(work, 16)
                rate = data / graph
                print(f"{kind:<8} {'HSD':<6} {'-':>5} {batch:>6} {tokens:>8} | "
                      f"{data / 2**20:>8.1f} {stream * 1e6:>9.1f} | {graph * 1e6:>8.1f} "
                      f"{rate * 1e-9:>8.0f} {100 * rate / read_rate:>5.0f}%")


def selection(read_rate):
    print("\nselection")

    def row(what, data, seconds):
        print(f"{what:<58} {seconds * 1e6:>9.2f} us {data / 1e6:>10.3f} MB "
              f"{data / seconds * 1e-9:>8.0f} GB/s {100 * data / seconds / read_rate:>6.1f} %")

    for rows, pages, k in [(8, 4096, 64), (8, 1024, 64), (64, 1024, 64), (32, 4096, 64),
                           (8, 131072, 2048)]:
        data = 2 * rows * pages * 2 * DIM
        copies = max(2, int(256e6 / data))
        bounds = random(copies, rows, pages, 2, DIM)
        query = random(rows, GROUP, DIM)
        scores = torch.randn(rows, pages, device="cuda")

        def score(i):
            low, high = bounds[i % copies, :, :, 0], bounds[i % copies, :, :, 1]
            raw = torch.baddbmm(torch.bmm(query.clamp(min=0), high.mT), query.clamp(max=0), low.mT)
            return torch.softmax(raw * SCALE, -1, dtype=torch.float32).mean(1)

        def top_k(values):
            return torch.topk(values, k, sorted=False).indices.sort().values

        shape = f"{rows} x {pages} pages, k {k}: "
        row(shape + "torch scores + pooling + top-k", data,
            in_graph(lambda i: top_k(score(i)), 32))
        row(shape + "torch scores, softmax mean", data, in_graph(score, 32))
        row(shape + "torch.topk", 4 * rows * pages,
            in_graph(lambda i: torch.topk(scores, k, sorted=False), 32))


def prefill_attention():
    print(f"\n{'prefill':<10} {'batch':>6} {'tokens':>8} {'past':>8} {'us':>12} {'TFLOP/s':>8}")
    for batch, tokens, past in [(1, 2048, 0), (1, 8192, 0), (1, 32768, 0), (4, 8192, 0),
                                (1, 4096, 28672)]:
        query = random(batch, HEADS * GROUP, tokens, DIM)
        launches = max(1, min(8, 65536 // tokens))
        kv = [random(2, batch, HEADS, past + tokens, DIM) for _ in range(launches)]
        flops = 4 * batch * HEADS * GROUP * DIM * (tokens * past + tokens * (tokens + 1) / 2)
        mask = ({"attn_mask": causal_lower_right(tokens, past + tokens)} if past
                else {"is_causal": True})
        for name in BACKENDS:
            try:
                seconds = in_graph(
                    lambda i: attention(query, *kv[i % launches], name, enable_gqa=True, **mask),
                    launches, 7)
                cells = f"{seconds * 1e6:>12.1f} {flops / seconds * 1e-12:>8.0f}"
            except RuntimeError:
                torch.cuda.synchronize()
                cells = f"{'not offered':>12} {'-':>8}"
            print(f"{name:<10} {batch:>6} {tokens:>8} {past:>8} {cells}")


def decoder(read_rate):
    hidden, mlp, vocabulary, query_heads = 4096, 14336, 128256, HEADS * GROUP
    print(f"\n{'kernel':<12} {'rows':>5} {'bytes':>12} {'us':>9} {'GB/s':>8}   share of reads")

    def row(name, rows, data, seconds):
        print(f"{name:<12} {rows:>5} {data:>12.0f} {seconds * 1e6:>9.2f} "
              f"{data / seconds * 1e-9:>8.0f} {100 * data / seconds / read_rate:>7.1f} %")

    def rotate_half(x):
        low, high = x.chunk(2, -1)
        return torch.cat((-high, low), -1)

    for rows in [1, 4, 64]:
        x, residual, weight = random(rows, hidden), random(rows, hidden), random(hidden)
        gate_up, logits = random(rows, 2 * mlp), random(rows, vocabulary)
        qkv = random(rows, query_heads + 2 * HEADS, DIM)
        cos, sin = random(rows, 1, DIM), random(rows, 1, DIM)
        cache = random(rows, 2, HEADS, DIM)

        def rope_append(_):
            turned = qkv[:, :-HEADS]
            turned = turned * cos + rotate_half(turned) * sin
            cache[:, 0] = turned[:, query_heads:]
            cache[:, 1] = qkv[:, -HEADS:]

        def norm(_):
            residual.add_(x)
            return F.rms_norm(residual, (hidden,), weight, 1e-5)

        row("add+rms_norm", rows, 2 * (4 * rows + 1) * hidden, in_graph(norm, 64))
        row("rope+append", rows, 4 * qkv.numel(), in_graph(rope_append, 64))
        row("silu*up", rows, 6 * rows * mlp,
            in_graph(lambda _: F.silu(gate_up[:, :mlp]) * gate_up[:, mlp:], 64))
        row("argmax", rows, 2 * rows * vocabulary, in_graph(lambda _: logits.argmax(-1), 64))
    weights = random(1 << 30)
    for name, n, k in [("qkv", 6144, hidden), ("o", hidden, hidden), ("gate+up", 2 * mlp, hidden),
                       ("down", hidden, mlp), ("head", vocabulary, hidden)]:
        copies = weights.numel() // (n * k)
        stack = weights[:copies * n * k].view(copies, n, k)
        for m in [1, 4, 16, 64]:
            x = random(m, k)
            seconds = in_graph(lambda i: F.linear(x, stack[i % copies]), min(copies, 32), 11)
            row(name, m, 2 * (n * k + m * (n + k)), seconds)


def main():
    read_rate = float(sys.argv[1]) * 1e9
    print(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
    with torch.inference_mode():
        decode_attention(read_rate)
        selection(read_rate)
        prefill_attention()
        decoder(read_rate)


if __name__ == "__main__":
    main()
