#!/usr/bin/env python3
"""Times a loop that brings pages from pinned memory to the GPU, as PyTorch programs write it.

    python3 capture/results/recall_loop.py --out recall.json

`scalars` has the page and slot numbers on the GPU and looks at each in the loop, `lists` fetches
both once as lists. `strided` copies each page of one KV head to a slice of a pool
[page][token][head][dim]. The JSON has microseconds a page, the median of the rounds."""

import argparse
import json
import statistics
import time

import torch

PAGES, POOL, ROUNDS = 40, 512, 25
HEADS, DIM = 8, 128


def measure(page_bytes, form):
    generator = torch.Generator().manual_seed(0)
    pages = torch.randperm(POOL, generator=generator)[:PAGES].cuda()
    slots = torch.arange(PAGES).cuda()
    shape = (page_bytes // (DIM * 2), DIM)
    pool = torch.zeros((POOL, *shape), dtype=torch.bfloat16).pin_memory()
    if form == "strided":
        whole = torch.zeros((PAGES, shape[0], HEADS, DIM), dtype=torch.bfloat16, device="cuda")
        cache = whole[:, :, 3]
    else:
        cache = torch.zeros((PAGES, *shape), dtype=torch.bfloat16, device="cuda")
    rounds = []
    for _ in range(ROUNDS + 3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        if form == "scalars":
            for page, slot in zip(pages, slots):
                cache[slot.item()].copy_(pool[page.item()], non_blocking=True)
        else:
            for page, slot in zip(pages.tolist(), slots.tolist()):
                cache[slot].copy_(pool[page], non_blocking=True)
        torch.cuda.synchronize()
        rounds.append((time.perf_counter() - begin) / PAGES * 1e6)
    rounds = rounds[3:]
    return [round(f(rounds), 3) for f in (statistics.median, min, max)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, metavar="FILE", help="the JSON to write")
    options = parser.parse_args()
    result = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "us_a_page": {}}
    with torch.inference_mode():
        for page_bytes in (16 << 10, 128 << 10):
            for form in ("scalars", "lists", "strided"):
                result["us_a_page"][f"{page_bytes >> 10} KiB {form}"] = measure(page_bytes, form)
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    print(json.dumps(result["us_a_page"]))


if __name__ == "__main__":
    main()
