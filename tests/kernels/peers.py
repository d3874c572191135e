"""What PyTorch takes for the stages that the kernels of LouisKV and PRKV do: the lines of
bench_clusters and bench_restructure, each as a user of the framework would write it.

Run it beside them on the same GPU:  python3 tests/kernels/peers.py
"""

import statistics

import torch

HEADS, GROUP, DIM, CLUSTER, ITERATIONS, PAGE, WINDOW = 8, 4, 128, 16, 5, 32, 64


def median_us(work, trials=11):
    """Median time between two events around work(), after a warm-up."""
    work()
    times = []
    for _ in range(trials):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def line(what, microseconds, amount, unit):
    """`amount`: operations or bytes."""
    scale = 1e6 if unit == "TFLOPS" or unit == "TOPS" else 1e3
    print(f"{what:<62} {microseconds:>10.2f} us {amount / microseconds / scale:>9.1f} {unit}")


def k_means(keys, clusters):
    """Lloyd's algorithm in bf16 products: keys [heads, tokens, dim]."""
    tokens = keys.shape[1]
    seeds = (2 * torch.arange(clusters, device="cuda") + 1) * tokens // (2 * clusters)
    centroids = keys[:, seeds]
    ones = torch.ones(keys.shape[:2], device="cuda")
    for i in range(ITERATIONS):
        close = 2 * (keys @ centroids.transpose(1, 2)).float()
        close -= centroids.float().square().sum(-1)[:, None]
        label = close.argmax(-1)
        sums = torch.zeros(centroids.shape, device="cuda")
        sums.scatter_add_(1, label[..., None].expand(-1, -1, DIM), keys.float())
        sizes = torch.zeros(centroids.shape[:2], device="cuda").scatter_add_(1, label, ones)
        centroids = (sums / sizes.clamp(min=1)[..., None]).to(keys.dtype)
    order = label.argsort(dim=-1, stable=True)
    offsets = sizes.cumsum(-1)
    return centroids, order, offsets, sizes


def select(query, centroids, order, offsets, sizes, budget):
    """Scores with softmax and mean over the group, units in order until the budget is full."""
    heads = centroids.shape[0]
    scores = query @ centroids.transpose(1, 2) / DIM**0.5
    pooled = scores.float().softmax(-1).mean(1)
    _, ranked = pooled.sort(-1, descending=True)
    size = sizes.gather(1, ranked)
    before = size.cumsum(-1) - size
    take = (budget - before).clamp(min=0).minimum(size).long()
    rows = []
    for head in range(heads):
        chosen = take[head].nonzero().flatten()
        begin = (offsets[head] - sizes[head])[ranked[head, chosen]].long()
        count = take[head, chosen]
        start = torch.repeat_interleave(begin - (count.cumsum(0) - count), count)
        rows.append(order[head, start + torch.arange(start.numel(), device="cuda")])
    return torch.stack([r[:budget] for r in rows])


def louiskv():
    for tokens in (8192, 32768, 65536):
        keys = torch.randn(HEADS, tokens, DIM, device="cuda", dtype=torch.bfloat16)
        clusters = tokens // CLUSTER
        operations = 2 * ITERATIONS * HEADS * tokens * clusters * DIM
        line(f"torch k-means of 8 x {tokens} keys, {clusters} clusters",
             median_us(lambda: k_means(keys, clusters), 5), operations, "TOPS")
        del keys
    for tokens in (32768, 131072):
        budget, clusters = 1728, tokens // CLUSTER
        keys = torch.randn(HEADS, tokens, DIM, device="cuda", dtype=torch.bfloat16)
        query = torch.randn(HEADS, GROUP, DIM, device="cuda", dtype=torch.bfloat16)
        label = torch.randint(clusters, (HEADS, tokens), device="cuda")
        sizes = torch.zeros(HEADS, clusters, device="cuda").scatter_add_(
            1, label, torch.ones(HEADS, tokens, device="cuda"))
        order, offsets = label.argsort(dim=-1, stable=True), sizes.cumsum(-1)
        centroids = keys[:, :clusters]
        what = f"8 x {clusters} units, {budget} tokens: "
        line("torch " + what + "scores, selection",
             median_us(lambda: select(query, centroids, order, offsets, sizes, budget)),
             2 * HEADS * clusters * DIM, "GB/s")
        rows = select(query, centroids, order, offsets, sizes, budget)
        pool = torch.zeros(2, tokens, HEADS, DIM, dtype=torch.bfloat16).pin_memory()
        moved = 4 * HEADS * budget * DIM

        def fetch():
            """Rows gathered on the host, then copied."""
            index = rows.cpu()
            for head in range(HEADS):
                pool[:, index[head], head].cuda()

        line("torch " + what + "rows", median_us(fetch), moved, "GB/s")
        staging = torch.empty(moved // 2, dtype=torch.bfloat16).pin_memory()
        target = torch.empty(moved // 2, dtype=torch.bfloat16, device="cuda")
        line("torch " + what + "one copy of as much",
             median_us(lambda: target.copy_(staging, non_blocking=True)), moved, "GB/s")
    query = torch.randn(1, 32, 32768, DIM, device="cuda", dtype=torch.bfloat16)
    key = torch.randn(1, HEADS, 32768, DIM, device="cuda", dtype=torch.bfloat16)
    attend = torch.nn.functional.scaled_dot_product_attention
    line("torch causal attention of 32768 tokens, 32/8 heads",
         median_us(lambda: attend(query, key, key, is_causal=True, enable_gqa=True), 5),
         2 * 32 * DIM * 32768**2, "TFLOPS")


def prkv():
    for tokens in (8192, 32768, 131072):
        chosen = 256
        keys = torch.randn(HEADS, tokens, DIM, device="cuda", dtype=torch.bfloat16)
        values = torch.randn_like(keys)
        query = torch.randn(HEADS, GROUP * WINDOW, DIM, device="cuda", dtype=torch.bfloat16)
        what = f"torch 8 x {tokens} tokens, {chosen} static: "

        def observe():
            weights = (query @ keys.transpose(1, 2) / DIM**0.5).float().softmax(-1)
            return weights.mean(1)

        def choose():
            return scores.topk(chosen).indices.sort(-1).values

        def move():
            rest = torch.ones(HEADS, tokens, dtype=torch.bool, device="cuda")
            rest.scatter_(1, ids, False)
            left = rest.nonzero()[:, 1].view(HEADS, tokens - chosen)
            order = torch.cat([ids, left], 1)[..., None].expand(-1, -1, DIM)
            return keys.gather(1, order), values.gather(1, order)

        def bound():
            pages = keys.view(HEADS, tokens // PAGE, PAGE, DIM).float()
            centre = (pages.amax(2) + pages.amin(2)) / 2
            radius = (pages - centre[:, :, None]).abs().mean(2)
            return (centre + radius).bfloat16(), (centre - radius).bfloat16()

        scores = observe()
        ids = choose()
        line(what + "observation scores", median_us(observe),
             2 * HEADS * GROUP * WINDOW * tokens * DIM, "TFLOPS")
        line(what + "choice", median_us(choose), 4 * HEADS * tokens, "GB/s")
        line(what + "pages restructured", median_us(move), 8 * HEADS * tokens * DIM, "GB/s")
        line(what + "bounds", median_us(bound), 2 * HEADS * tokens * DIM, "GB/s")
    for missed in (32, 192):
        pool = torch.zeros(8192, 2 * PAGE * DIM, dtype=torch.bfloat16).pin_memory()
        nhd = torch.zeros(1024, 2 * PAGE, HEADS, DIM, dtype=torch.bfloat16).pin_memory()
        source = torch.randint(8192, (missed,))
        staging = torch.empty(missed, 2 * PAGE * DIM, dtype=torch.bfloat16).pin_memory()
        cache = torch.empty(8192, 2 * PAGE * DIM, device="cuda", dtype=torch.bfloat16)
        slots = torch.randperm(8192, device="cuda")[:missed]
        moved = missed * 4 * PAGE * DIM
        what = f"torch {missed} pages of 16 KiB: "

        def batched():
            torch.index_select(pool, 0, source, out=staging)
            cache[slots] = staging.cuda(non_blocking=True)

        def rows():
            staging.view(missed, 2 * PAGE, DIM).copy_(nhd[source // HEADS, :, source % HEADS])
            cache[slots] = staging.cuda(non_blocking=True)

        def each():
            for i, page in enumerate(source.tolist()):
                cache[i].copy_(pool[page], non_blocking=True)

        line(what + "gathered, one copy, dispatch", median_us(batched), moved, "GB/s")
        line(what + "NHD rows gathered, one copy, dispatch", median_us(rows), moved, "GB/s")
        line(what + "a copy each", median_us(each), moved, "GB/s")


if __name__ == "__main__":
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    louiskv()
    prkv()
