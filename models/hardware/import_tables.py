#!/usr/bin/env python3
"""Kernel fits of a machine from the public kernel tables of ai-dynamo/aiconfigurator.

    import_tables.py TABLES MACHINE            prints [kernel.*] sections of a profile
    import_tables.py TABLES MACHINE --ratios h200.toml    measured by ours over the tables' times

TABLES is the folder `systems/data` of a checkout, MACHINE a folder in it (a100_sxm, b200_sxm, ...).
Needs pyarrow, numpy and scipy. A development tool, not a part of the program: the tables change
with each release of the kernels and are read once a machine, so Arrow's C++ library, which is
larger than all of Stallcast, would be carried by everyone for a file that nobody reads again.

Each kind's law is fixed + max(bytes / bandwidth, operations / flops, items x serial), as in
kernel_law.h, fitted to log(time) over all rows of the table that a decode step may have. Rows whose
bytes would come faster than the machine's memory has them are wrong and left out, with their
number. Some shapes are kept as timed points beside it. What a table does not have is not printed.
"""

import argparse
import glob
import os
import re
import sys
import tomllib

import numpy as np
import pyarrow.parquet as parquet
from scipy.optimize import minimize

SOURCE = "AIConfigurator 095f58a (Apache-2.0)"
TILE, SPLITS = 128, 128  # as in models/plan/work.cc
ELEMENT = 2

# Peak rate of the memory and of bf16, and the rate of one GPU's NVLink or of its PCIe: the yaml
# files beside the tables.
YAML = re.compile(r"^\s*(\w+):\s*([0-9.e]+)", re.M)


def facts(tables, machine):
    with open(os.path.join(tables, machine + ".yaml"), encoding="utf-8") as file:
        return {key: float(value) for key, value in YAML.findall(file.read())}


def newest(tables, machine, kind, name):
    """Rows of all backends' newest files of this name, a dict of columns each with its path."""
    found = []
    for path in sorted(glob.glob(os.path.join(tables, machine, kind, "*", "*", name))):
        columns = {key: np.array(values)
                   for key, values in parquet.read_table(path).to_pydict().items()}
        found.append((os.path.relpath(path, tables), columns))
    return found


def picked(columns, mask):
    return {key: values[mask] for key, values in columns.items()}


class Rows:
    """Shapes of one op kind with their counts and measured seconds."""

    def __init__(self, shape, read, flops, items, seconds, source):
        self.shape = np.column_stack(
            [np.maximum(np.asarray(s, float), 1) * np.ones(len(shape[0])) for s in shape])
        self.bytes, self.flops, self.items, self.seconds = (
            np.asarray(each, float) * np.ones(len(self.shape)) for each in
            (read, flops, items, seconds))
        self.source, self.dropped = source, 0

    def keep(self, mask):
        for name in ("shape", "bytes", "flops", "items", "seconds"):
            setattr(self, name, getattr(self, name)[mask])

    def drop_impossible(self, peak):
        # What stays in the level-two cache between runs may come faster.
        impossible = (self.bytes / self.seconds > 1.02 * peak) & (self.bytes > 256e6)
        self.dropped = int(impossible.sum())
        self.keep(~impossible)
        return self


def law(rows, parameters):
    """Seconds; `parameters` are logarithms of fixed, bandwidth, flops and serial."""
    fixed, bandwidth, flops, serial = np.exp(parameters)
    flow = np.maximum(rows.bytes / bandwidth, rows.items * serial)
    return fixed + np.maximum(flow, rows.flops / flops)


def fit(rows, peak_bytes, peak_flops, serial):
    # Of a prompt nothing is bound by memory: its rate is not to be had from these rows.
    computes = np.median(rows.flops / peak_flops) > np.median(rows.bytes / peak_bytes)

    def loss(parameters):
        if computes:
            parameters[1] = np.log(0.8 * peak_bytes)
        error = np.log(law(rows, parameters) / rows.seconds)
        return np.mean(np.abs(error)) + np.sum(np.maximum(parameters[1:3] - limits, 0))

    limits = np.log([peak_bytes, peak_flops])
    best = None
    for share in (0.9, 0.6, 0.3):
        start = np.log([np.quantile(rows.seconds, 0.05), share * peak_bytes,
                        max(share, 0.5) * peak_flops, 10e-9 if serial else 1e-18])
        found = minimize(loss, start, method="Nelder-Mead",
                         options={"maxiter": 4000, "xatol": 1e-4, "fatol": 1e-6})
        if best is None or found.fun < best.fun:
            best = found
    if computes:
        best.x[1] = np.log(0.8 * peak_bytes)
    return best.x


def table_gemm(tables, machine, dtype="bfloat16", width=2.0):
    for path, t in newest(tables, machine, "gemm", "gemm_perf.parquet"):
        t = picked(t, (t["gemm_dtype"] == dtype) & (t["m"] <= 512) & (t["n"] * t["k"] >= 1 << 19))
        if len(t["m"]) == 0:
            continue
        m, n, k = (t[name].astype(float) for name in "mnk")
        return Rows((m, n, k), ELEMENT * (m * k + m * n) + width * n * k, 2 * m * n * k, 0,
                    t["latency"] / 1e3, path)
    return None


def table_decode_attention(tables, machine, backends=("vllm", "sglang")):
    found = newest(tables, machine, "attention", "generation_attention_perf.parquet")
    for backend in backends:
        for path, t in found:
            if f"/{backend}/" not in path:
                continue
            mask = ((t["kv_cache_dtype"] == "bfloat16") & (t["num_key_value_heads"] > 0)
                    & (t["head_dim"] == 128) & (t["batch_size"] <= 64) & (t["step"] >= 512))
            if "window_size" in t:
                mask &= t["window_size"] == 0
            t = picked(t, mask)
            if len(t["step"]) == 0:
                continue
            batch, heads, kv = (t[name].astype(float) for name in
                                ("batch_size", "num_heads", "num_key_value_heads"))
            tokens = t["isl"].astype(float) + t["step"]
            rows = tokens * batch * kv
            queries = batch * heads * 128 * ELEMENT
            split = np.maximum(TILE, np.ceil(tokens / SPLITS))
            return Rows((tokens, batch * kv, heads / kv), 2 * rows * 128 * ELEMENT + 2 * queries,
                        4 * rows * (heads / kv) * 128, np.minimum(tokens, split),
                        t["latency"] / 1e3, path)
    return None


def table_prefill_attention(tables, machine):
    for path, t in newest(tables, machine, "attention", "context_attention_perf.parquet"):
        if "/vllm/" not in path:
            continue
        mask = ((t["kv_cache_dtype"] == "bfloat16") & (t["head_dim"] == 128) & (t["isl"] >= 1024)
                & (t["attn_dtype"] == "bfloat16"))
        if "window_size" in t:
            mask &= t["window_size"] == 0
        t = picked(t, mask)
        batch, heads, kv, tokens = (t[name].astype(float) for name in
                                    ("batch_size", "num_heads", "num_key_value_heads", "isl"))
        moved = ELEMENT * 128 * batch * tokens * (2 * heads + 2 * kv)
        pairs = tokens * (tokens + 1) / 2
        return Rows((tokens, tokens, batch * heads, 128), moved, 4 * batch * heads * 128 * pairs, 0,
                    t["latency"] / 1e3, path)
    return None


def distinct(experts, active, tokens):
    return experts * (1 - (1 - active / experts) ** tokens)


def table_grouped_gemm(tables, machine, dtype="bfloat16", width=2.0):
    """A row is two grouped GEMMs and what lies between: each is given half of the time."""
    for path, t in newest(tables, machine, "moe", "moe_perf.parquet"):
        t = picked(t, (t["moe_dtype"] == dtype) & (t["num_tokens"] <= 256) & (t["moe_ep_size"] == 1)
                   & np.char.startswith(t["distribution"].astype(str), "balanced"))
        if len(t["topk"]) == 0:
            continue
        tokens, hidden, top, experts = (t[name].astype(float) for name in
                                        ("num_tokens", "hidden_size", "topk", "num_experts"))
        inner = t["inter_size"] / t["moe_tp_size"].astype(float)
        taken = np.minimum(experts, tokens * top)  # "balanced": as many as can be
        rows = tokens * top
        read = 1.5 * inner * hidden * taken * width + ELEMENT * rows * 2 * (inner + hidden)
        return Rows((rows, 1.5 * inner, hidden, taken), read, 2 * rows * 1.5 * inner * hidden, 0,
                    t["latency"] / 2e3, path)
    return None


def table_latent_attention(tables, machine):
    for path, t in newest(tables, machine, "mla", "generation_mla_perf.parquet"):
        t = picked(t, (t["kv_cache_dtype"] == "bfloat16") & (t["batch_size"] <= 64)
                   & (t["step"] >= 512) & (t["num_heads"] >= 8))
        if len(t["step"]) == 0:
            continue
        batch, heads = (t[name].astype(float) for name in ("batch_size", "num_heads"))
        tokens = t["isl"].astype(float) + t["step"]
        split = np.maximum(TILE, np.ceil(tokens / SPLITS))
        read = tokens * batch * 576 * ELEMENT + batch * heads * (576 + 512) * ELEMENT
        return Rows((tokens, batch, heads, 576), read, 2 * tokens * batch * heads * (576 + 512),
                    np.minimum(tokens, split), t["latency"] / 1e3, path)
    return None


def table_latent_index(tables, machine):
    """Layers of GLM-5 with their indexer less the same layers of GLM-5.2 without: the indexer. Its
    two GEMMs are taken out again, by the machine's law of a GEMM."""
    gemms = table_gemm(tables, machine)
    if gemms is None:
        return None
    known = facts(tables, machine)
    gemm = fit(gemms, known["mem_bw"], known["bfloat16_tc_flops"], False)
    for path, t in newest(tables, machine, "sparse_attention", "dsa_generation_module_perf.parquet"):
        if "/sglang/" not in path:
            continue
        mask = ((t["gemm_type"] == "bfloat16") & (t["kv_cache_dtype"] == "bfloat16")
                & (t["num_heads"] == 64) & (t["batch_size"] <= 64))
        t = picked(t, mask)
        skips = np.char.find(t["kernel_source"].astype(str), "skip_indexer") >= 0
        without = {(b, s): l for b, s, l, skip in
                   zip(t["batch_size"], t["step"], t["latency"], skips) if skip}
        rows = [(b, s + 1, l - without[b, s]) for b, s, l, skip, model in
                zip(t["batch_size"], t["step"], t["latency"], skips, t["model"])
                if not skip and (b, s) in without and model == "zai-org/GLM-5" and s >= 2048]
        if len(rows) < 8:
            continue
        batch, tokens, millis = (np.array(column, float) for column in zip(*rows))
        shapes = [(batch, 32 * 128, 2048), (batch, 128 + 32, 6144)]
        gemm_time = 0
        for m, n, k in shapes:
            one = Rows((m, n * np.ones_like(m), k * np.ones_like(m)),
                       ELEMENT * (m * k + m * n + n * k), 2 * m * n * k, 0, 1, "")
            gemm_time = gemm_time + law(one, gemm)
        seconds = millis / 1e3 - gemm_time
        keys = batch * tokens
        result = Rows((tokens, keys, 32 * np.ones_like(keys), 128 * np.ones_like(keys)),
                      132 * keys, 2 * keys * 32 * 128, tokens, seconds, path)
        result.keep(seconds > 1e-6)
        return result
    return None


def table_all_reduce(tables, machine):
    for path, t in newest(tables, machine, "comm", "custom_allreduce_perf.parquet"):
        if "/vllm/" not in path:
            continue
        t = picked(t, (t["backend"] == "vllm_graph") & (t["message_size"] <= 1 << 22))
        if len(t["num_gpus"]) == 0:
            continue
        size = t["message_size"].astype(float) * ELEMENT  # of half precision
        gpus = t["num_gpus"].astype(float)
        return Rows((size, gpus), 2 * size * (gpus - 1) / gpus, 0, 0, t["latency"] / 1e3, path)
    return None


KINDS = {
    "gemm": (table_gemm, False, "bf16, at most 512 rows"),
    "decode_attention": (table_decode_attention, True, "bf16, 128 wide, at most 64 sequences"),
    "prefill_attention": (table_prefill_attention, False, "bf16, 128 wide"),
    "grouped_gemm": (table_grouped_gemm, False, "bf16, half of a fused mixture of experts"),
    "latent_attention": (table_latent_attention, True, "bf16 latents of 576"),
    "latent_index": (table_latent_index, True,
                     "GLM-5's layers with an indexer less GLM-5.2's without, and less its GEMMs"),
    "all_reduce": (table_all_reduce, False, "custom kernels inside a CUDA graph"),
}

# Shapes that are kept as timed points, as near as the table has them.
POINTS = {
    "gemm": [(m, n, k) for m in (1, 8, 32) for n, k in
             ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096),
              (10240, 8192), (8192, 28672), (5120, 2048))],
    "decode_attention": [(t, r, g) for t in (2048, 8192, 32768, 131072) for r in (8, 32, 64)
                         for g in (4, 8)],
    "grouped_gemm": [(t * 8, 1.5 * 768, 2048, min(128, t * 8)) for t in (1, 2, 4, 8, 16)],
    "latent_attention": [(t, b, 128, 576) for t in (2048, 8192, 32768, 131072) for b in (1, 8)],
    "latent_index": [(k, k * b, 32, 128) for k in (8192, 32768, 131072) for b in (1, 8)],
    "all_reduce": [(s, g) for s in (8192, 65536, 1 << 20) for g in (2, 4, 8)],
}


def nearest_points(kind, rows, parameters):
    kept = {}
    shapes = np.log2(rows.shape)
    for wanted in POINTS.get(kind, []):
        apart = np.sum((shapes[:, :len(wanted)] - np.log2(wanted)) ** 2, axis=1)
        at = int(np.argmin(apart))
        if apart[at] > 1:  # an octave
            continue
        shape = [float(s) for s in rows.shape[at]]
        shape += [1.0] * (4 - len(shape))
        same = np.all(np.isclose(rows.shape, rows.shape[at]), axis=1)
        seconds = float(np.median(rows.seconds[same]))
        factor = seconds / float(np.median(law(rows, parameters)[same]))
        kept[tuple(shape)] = (seconds * 1e6, factor)
    return kept


def number(value):
    return f"{value:.5g}"


def section(kind, rows, parameters, note):
    fixed, bandwidth, flops, serial = np.exp(parameters)
    error = np.abs(np.log(law(rows, parameters) / rows.seconds))
    lines = [f"[kernel.{kind}]", f'fixed = "{number(fixed * 1e6)} us"',
             f'bandwidth = "{number(bandwidth / 1e9)} GB/s"']
    if np.any(rows.flops > 0):
        lines.append(f'flops = "{number(flops / 1e12)} TFLOPS"')
    if np.any(rows.items > 0) and serial > 1e-12:
        lines.append(f'serial = "{number(serial * 1e9)} ns"')
    spread = float(np.std(np.log(law(rows, parameters) / rows.seconds)))
    lines += [f'spread = "{spread:.2f}"',
              f'range = ["{number(rows.bytes.min())} B", "{number(rows.bytes.max())} B"]']
    points = nearest_points(kind, rows, parameters)
    if points:
        lines.append("points = [")
        for shape, (micros, factor) in sorted(points.items()):
            sizes = ", ".join(number(size) for size in shape)
            lines.append(f"  [{sizes}, {number(micros)}, {number(factor)}, 1],")
        lines.append("]")
    dropped = f"; {rows.dropped} rows above the memory's rate left out" if rows.dropped else ""
    lines.append(f'source = "{SOURCE}, {rows.source}: {len(rows.seconds)} rows, {note}, '
                 f'median error {100 * np.median(error):.0f} %{dropped}"')
    return "\n".join(lines) + "\n"


def ratios(tables, machine, profile):
    """Time by a profile's own fit over the tables' time, at the tables' shapes: quartiles."""
    with open(profile, "rb") as file:
        ours = tomllib.load(file)["kernel"]
    scale = {"us": 1e-6, "ns": 1e-9, "ms": 1e-3, "s": 1, "B/s": 1, "MB/s": 1e6, "GB/s": 1e9,
             "TB/s": 1e12, "FLOPS": 1, "GFLOPS": 1e9, "TFLOPS": 1e12, "PFLOPS": 1e15}

    def value(kind, name, fallback):
        text = ours[kind].get(name)
        if text is None:
            return fallback
        amount, unit = text.split()
        return float(amount) * scale[unit] or fallback

    for kind, (read, _, note) in KINDS.items():
        rows = read(tables, machine)
        if rows is None or kind not in ours:
            continue
        parameters = np.log([value(kind, "fixed", 1e-18), value(kind, "bandwidth", 1e18),
                             value(kind, "flops", 1e30), value(kind, "serial", 1e-18)])
        ratio = law(rows, parameters) / rows.seconds
        for which, mask in (("all", ratio > 0), ("over 64 MB", rows.bytes > 64e6)):
            quartiles = np.quantile(ratio[mask], (0.25, 0.5, 0.75))
            print(f"| {kind} | {note} | {which} | {mask.sum()} | " +
                  " | ".join(f"{each:.2f}" for each in quartiles) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables")
    parser.add_argument("machine")
    parser.add_argument("--ratios", metavar="PROFILE", help="compare with a profile's own fits")
    options = parser.parse_args()
    if options.ratios:
        ratios(options.tables, options.machine, options.ratios)
        return
    known = facts(options.tables, options.machine)
    for kind, (read, serial, note) in KINDS.items():
        rows = read(options.tables, options.machine)
        if rows is None or len(rows.seconds) < 8:
            print(f"# no table of {kind}", file=sys.stderr)
            continue
        peak = known["intra_node_bw"] * 2 if kind == "all_reduce" else known["mem_bw"]
        rows.drop_impossible(peak)
        print(section(kind, rows, fit(rows, peak, known["bfloat16_tc_flops"], serial), note))


if __name__ == "__main__":
    main()
