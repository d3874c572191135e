"""The obvious PyTorch version of each stage that bench_pariskv and bench_wgkv time, with their rows.

    python3 tests/kernels/peers_pw.py

Indices are given to PyTorch in the types that it wants (int64), so that no conversion is timed.
"""

import statistics
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

ROWS, DIM, PARTS, GROUP, TOP_K, HIDDEN = 8, 128, 16, 4, 100, 512
SUB = DIM // PARTS
TENSOR_RATE = 989e12
DEVICE = "cuda"


def timed(work, trials=7):
    """Median seconds of a call, launches included."""
    work()
    torch.cuda.synchronize()
    seconds = []
    for _ in range(trials):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        stop.record()
        stop.synchronize()
        seconds.append(start.elapsed_time(stop) * 1e-3)
    return statistics.median(seconds)


def row(what, seconds, amount, unit="MB"):
    scale = 1e6 if unit == "MB" else 1e12
    rate = amount / seconds / (1e9 if unit == "MB" else 1e12)
    share = "" if unit == "MB" else f" {100 * amount / seconds / TENSOR_RATE:6.1f} %"
    name = "GB/s" if unit == "MB" else "TF/s"
    print(f"{what:<46} {seconds * 1e6:10.2f} us {amount / scale:12.3f} {unit} {rate:8.0f} {name}{share}",
          flush=True)


def select(n, beta):
    name = f"{ROWS} x {n}: "
    count = -(-int(beta * 1000) * n // 1000)
    keys = torch.randn(ROWS, n, DIM, device=DEVICE, dtype=torch.bfloat16)
    rotation = torch.linalg.qr(torch.randn(DIM, DIM, device=DEVICE))[0]
    thresholds = torch.linspace(0.1, 0.7, 7, device=DEVICE)
    levels = torch.linspace(0.05, 0.8, 8, device=DEVICE)
    bit = 2 ** torch.arange(SUB, device=DEVICE)

    def encode():
        x = keys.float()
        norm = x.norm(dim=-1, keepdim=True)
        y = (x / norm @ rotation.T).view(ROWS, n, PARTS, SUB)
        radius = y.norm(dim=-1, keepdim=True)
        u = y / radius
        ids = ((u >= 0) * bit).sum(-1).to(torch.uint8)
        bins = torch.bucketize(u.abs(), thresholds)
        v = levels[bins] * torch.sign(u)
        weight = (norm * radius.squeeze(-1) / (v * u).sum(-1)).to(torch.bfloat16)
        nibbles = (bins + 8 * (u < 0)).view(ROWS, n, DIM // 2, 2)
        return ids, (nibbles[..., 0] + 16 * nibbles[..., 1]).to(torch.uint8), weight

    ids, codes, weights = encode()
    row(name + "encode", timed(encode, 3), ROWS * n * (256 + 112))
    query = torch.randn(ROWS, GROUP, DIM, device=DEVICE, dtype=torch.bfloat16)
    patterns = (2.0 * ((torch.arange(256, device=DEVICE)[:, None] // bit) % 2) - 1)
    counts = torch.randint(0, n // 128, (ROWS, PARTS, 256), device=DEVICE)
    limits = torch.tensor([0.05, 0.15, 0.3, 0.5, 0.75, 1.0], device=DEVICE) * 0.2 * n

    def table():
        q = query.float().mean(1)
        q = (q / q.norm(dim=-1, keepdim=True)) @ rotation.T
        order = (q.view(ROWS, PARTS, SUB) @ patterns.T).argsort(-1, descending=True)
        sorted_counts = counts.gather(-1, order)
        before = sorted_counts.cumsum(-1) - sorted_counts
        bonus = 6 - torch.bucketize(before.float(), limits, right=True)
        return torch.zeros_like(order).scatter_(-1, order, bonus), q

    bonuses, rotated = table()
    row(name + "collision table", timed(table), ROWS * PARTS * 256 * 5)
    by_part = ids.transpose(1, 2).contiguous().long()

    def score():
        return bonuses.gather(-1, by_part).sum(1)

    scores = score().float()
    row(name + "collision scores", timed(score), ROWS * n * 17)
    row(name + "bucket top-k", timed(lambda: scores.topk(count, sorted=False)),
        ROWS * n + ROWS * count * 4)
    chosen = scores.topk(count, sorted=False).indices
    signed = torch.cat([levels, -levels])

    def rerank():
        code = codes.gather(1, chosen[..., None].expand(-1, -1, DIM // 2)).int()
        v = signed[torch.stack([code & 15, code >> 4], -1).view(ROWS, count, PARTS, SUB)]
        dot = (v * rotated.view(ROWS, 1, PARTS, SUB)).sum(-1)
        return (dot * weights.gather(1, chosen[..., None].expand(-1, -1, PARTS))).sum(-1)

    estimates = rerank()
    row(name + "rerank", timed(rerank), ROWS * count * 104)
    row(name + "top-k of candidates", timed(lambda: estimates.topk(TOP_K)), ROWS * count * 4)


def fetch():
    tokens = 1 << 18  # as many as fit twice
    joined = torch.zeros(ROWS, tokens, 2, DIM, dtype=torch.bfloat16, pin_memory=True)
    split = joined.view(2, ROWS, tokens, DIM)
    for k in (100, 1000):
        index = torch.randint(0, tokens, (ROWS, k), device=DEVICE)

        def gather_joined():
            return joined[torch.arange(ROWS)[:, None], index.cpu()].to(DEVICE)

        def gather_split():
            wide = index.cpu()[..., None].expand(-1, -1, DIM)
            return [part.gather(1, wide).to(DEVICE) for part in split]

        for layout, gather in (("split", gather_split), ("joined", gather_joined)):
            seconds = []
            for _ in range(9):
                torch.cuda.synchronize()
                start = time.perf_counter()
                gather()
                torch.cuda.synchronize()
                seconds.append(time.perf_counter() - start)
            row(f"fetch {ROWS} x {k} {layout}, framework gather", statistics.median(seconds),
                ROWS * k * 512)


def gate(tokens):
    before, after = (torch.randn(tokens, ROWS, DIM, device=DEVICE, dtype=torch.bfloat16)
                     for _ in range(2))
    w1 = torch.randn(ROWS, HIDDEN, 2 * DIM, device=DEVICE, dtype=torch.bfloat16) * 0.05
    b1, w2 = (torch.randn(ROWS, 1, HIDDEN, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))

    def run():
        x = torch.cat([F.rms_norm(before, (DIM,)), F.rms_norm(after, (DIM,))], -1)
        hidden = F.gelu(torch.baddbmm(b1, x.transpose(0, 1), w1.transpose(1, 2)))
        return torch.sigmoid((hidden * w2).sum(-1))

    name = f"gate MLP, {tokens} tokens"
    if tokens > 1000:
        row(name, timed(run), ROWS * tokens * 2 * HIDDEN * (2 * DIM + 1), "TF")
    else:
        row(name, timed(run), w1.numel() * 2)


def admit(tokens):
    kv = torch.randn(tokens, ROWS, 2, DIM, device=DEVICE, dtype=torch.bfloat16)
    scores = torch.randint(0, 4, (ROWS, tokens), device=DEVICE).float()

    def run():
        return [kv[torch.where(scores[head] >= 3)[0], head] for head in range(ROWS)]

    row(f"admit a quarter of {ROWS} x {tokens}", timed(run), ROWS * tokens * (4 + 256))


def prefill(tokens):
    query = torch.randn(1, ROWS * GROUP, tokens, DIM, device=DEVICE, dtype=torch.bfloat16)
    key, value = (torch.randn(1, ROWS, tokens, DIM, device=DEVICE, dtype=torch.bfloat16)
                  for _ in range(2))
    pairs = ROWS * GROUP * tokens * (tokens + 1) / 2
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(backend):
            seconds = timed(lambda: F.scaled_dot_product_attention(
                query, key, value, is_causal=True, enable_gqa=True), 3)
        row(f"dense prefill, {tokens} tokens, {backend.name[:5].lower()}", seconds,
            pairs * 4 * DIM, "TF")


def main():
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}; times with launches")
    with torch.inference_mode():
        for n, beta in ((16384, 0.2), (32768, 0.1), (131072, 0.1), (262144, 0.1)):
            select(n, beta)
        fetch()
        for tokens in (1, 4, 32768, 131072):
            gate(tokens)
        for tokens in (32768, 131072):
            admit(tokens)
        for tokens in (32768, 131072, 200000):
            prefill(tokens)


if __name__ == "__main__":
    main()
