#!/usr/bin/env python3
"""Times decode steps of transformers on a GPU: Llama-3.1-8B's shape, random weights.

    python3 capture/results/transformers_steps.py --out steps.json [--context 8192,32768]

`full` is a DynamicCache, `offloaded` one with offloading=True, `static eager` and `static graph` a
StaticCache launched operator by operator and as one CUDA graph. Two programs change `offloaded` in
one place: `offloaded side` writes back on a stream of its own, `offloaded new` keeps the cache in
pinned memory, token after token, and writes back the new tokens alone.

The JSON has for each the median, least and greatest step in ms by CUDA events, and of three steps
under PyTorch's profiler the operators, kernels and copies a step. `--traces DIR` keeps the profiler's
recordings. A program that fails leaves its error in place of times. After each program the file is
written anew.

`--apart DIR` runs each program in a process of its own, as a user does, and measures the host's
operators right before it (stallcast_capture.host_costs): DIR/PROGRAM-CONTEXT-bBATCH.toml, a profile
that differs from `--machine` by them."""

import argparse
import collections
import gzip
import inspect
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import transformers
from transformers.cache_utils import DynamicLayer

SHAPE = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "bos_token_id": None,
    "eos_token_id": None,
}
PREFILL_CHUNK = 4096
PROGRAMS = ("full", "offloaded", "static eager", "static graph", "offloaded side", "offloaded new")
PROFILED_STEPS = 3


def make_model(device, layers):
    config = transformers.LlamaConfig(**{**SHAPE, "num_hidden_layers": layers})
    config._attn_implementation = "sdpa"
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model = transformers.LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    return model.eval()


class Program:
    """A model, a cache with `context` tokens, and what makes its next step."""

    def __init__(self, model, cache, context, batch):
        self.model, self.context = model, context
        named = "cache" if "cache" in inspect.signature(model.forward).parameters else None
        self.cache = {named or "past_key_values": cache}
        self.token = torch.randint(0, SHAPE["vocab_size"], (batch, 1), device=model.device)
        self.position = torch.full((1,), context, dtype=torch.long, device=model.device)

    def prefill(self):
        for first in range(0, self.context, PREFILL_CHUNK):
            count = min(PREFILL_CHUNK, self.context - first)
            ids = torch.randint(
                0, SHAPE["vocab_size"], (len(self.token), count), device=self.model.device
            )
            positions = torch.arange(first, first + count, device=self.model.device)
            self._forward(ids, positions, logits_to_keep=1)

    def step(self):
        logits = self._forward(self.token, self.position)
        self.token.copy_(logits[:, -1:].argmax(-1))
        self.position += 1

    def _forward(self, ids, positions, **more):
        return self.model(
            input_ids=ids,
            position_ids=positions.unsqueeze(0),
            use_cache=True,
            **self.cache,
            **more,
        ).logits


class GraphProgram(Program):
    """The same step, recorded once as a CUDA graph."""

    def prefill(self):
        super().prefill()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                super().step()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            super().step()

    def step(self):
        self._graph.replay()


class SideStreamCache(transformers.DynamicCache):
    """An offloaded cache that is written back on a stream of its own."""

    def __init__(self, config):
        super().__init__(config=config, offloading=True)
        self._side = torch.cuda.Stream()

    def prefetch(self, layer_idx, *more):
        self.prefetch_stream.wait_stream(self._side)
        super().prefetch(layer_idx, *more)

    def offload(self, layer_idx, *more):
        layer = self.layers[layer_idx]
        for tensor in (layer.keys, layer.values):
            tensor.record_stream(self._side)
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            super().offload(layer_idx, *more)


class PinnedLayer(DynamicLayer):
    """A layer whose cache lies in pinned memory as [token][sequence][head][dim]."""

    def __init__(self, capacity):
        super().__init__()
        self._capacity, self._length = capacity, 0

    def lazy_initialization(self, key_states, value_states):
        super().lazy_initialization(key_states, value_states)
        batch, heads, _, dim = key_states.shape
        shape = (self._capacity, batch, heads, dim)
        self._host = [torch.empty(shape, dtype=self.dtype, pin_memory=True) for _ in range(2)]
        self._fetched = [torch.empty((0, *shape[1:]), dtype=self.dtype, device=self.device)] * 2

    def update(self, key_states, value_states, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        first, self._length = self._length, self._length + key_states.shape[-2]
        whole = []
        for part, states in enumerate((key_states, value_states)):
            new = states.permute(2, 0, 1, 3).contiguous()
            self._host[part][first : self._length].copy_(new, non_blocking=True)
            whole.append(torch.cat([self._fetched[part], new]).permute(1, 2, 0, 3))
        return tuple(whole)

    def get_seq_length(self):
        return self._length

    def offload(self):
        self._fetched = None

    def prefetch(self):
        if self.is_initialized and self._fetched is None:
            self._fetched = [
                host[: self._length].to(self.device, non_blocking=True) for host in self._host
            ]


class NewTokenCache(transformers.Cache):
    """An offloaded cache that writes back the tokens of this step alone."""

    def __init__(self, config, capacity):
        layers = [PinnedLayer(capacity) for _ in range(config.num_hidden_layers)]
        super().__init__(layers=layers, offloading=True)


def make_program(name, model, context, batch, steps):
    config = model.config
    if name == "offloaded side":
        return Program(model, SideStreamCache(config), context, batch)
    if name == "offloaded new":
        return Program(model, NewTokenCache(config, context + steps), context, batch)
    if name.startswith("static"):
        cache = transformers.StaticCache(config=config, max_cache_len=context + steps)
        kind = GraphProgram if name == "static graph" else Program
        return kind(model, cache, context, batch)
    cache = transformers.DynamicCache(config=config, offloading=name == "offloaded")
    return Program(model, cache, context, batch)


def time_steps(program, steps):
    """Milliseconds of each step; as generate() does, the host looks at each token."""
    times = []
    for _ in range(steps):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        program.step()
        end.record()
        program.token[0, 0].item()
        times.append(begin.elapsed_time(end))
    return times


def profile_steps(program, path):
    """Counts of a step by category, from a Kineto recording that is left at `path`."""
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profiler:
        for step in range(PROFILED_STEPS):
            with torch.profiler.record_function(f"decode step {step}"):
                program.step()
                program.token[0, 0].item()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(path)
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as file:
        events = json.load(file)["traceEvents"]
    count, busy, moved = collections.Counter(), collections.Counter(), collections.Counter()
    for event in events:
        category = event.get("cat", "")
        if category == "gpu_memcpy":
            category = event["name"].split(" (")[0]
            moved[category] += event.get("args", {}).get("bytes", 0)
        elif category not in ("cpu_op", "kernel", "cuda_runtime"):
            continue
        count[category] += 1
        busy[category] += event.get("dur", 0)
    return {
        kind: {
            "count": round(count[kind] / PROFILED_STEPS, 1),
            "ms": round(busy[kind] / PROFILED_STEPS / 1e3, 3),
            **({"bytes": round(moved[kind] / PROFILED_STEPS)} if moved[kind] else {}),
        }
        for kind in sorted(count)
    }


def file_name(program, context, batch):
    return f"{program.replace(' ', '-')}-{context}-b{batch}"


@torch.inference_mode()
def measure(name, model, context, batch, options):
    profiled = PROFILED_STEPS + 1
    program = make_program(
        name, model, context, batch, options.steps + options.warm_up + profiled + 8
    )
    begin = time.perf_counter()
    program.prefill()
    torch.cuda.synchronize()
    prefill = time.perf_counter() - begin
    time_steps(program, options.warm_up)
    times = time_steps(program, options.steps)
    result = {
        "context": context,
        "batch": batch,
        "steps": len(times),
        "step_ms": [round(f(times), 3) for f in (statistics.median, min, max)],
        "prefill_s": round(prefill, 3),
    }
    label = file_name(name, context, batch) + ".json.gz"
    with tempfile.TemporaryDirectory() as folder:
        result["a_step"] = profile_steps(program, os.path.join(options.traces or folder, label))
    return result


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, metavar="FILE", help="the JSON to write")
    parser.add_argument("--context", default="8192,32768", help="tokens (8192,32768)")
    parser.add_argument("--batch", type=int, default=1, help="sequences (1)")
    parser.add_argument(
        "--programs",
        default=",".join(PROGRAMS),
        help=f"which ({','.join(PROGRAMS)})",
    )
    parser.add_argument("--steps", type=int, default=32, help="steps to time (32)")
    parser.add_argument("--warm-up", type=int, default=8, help="steps before them (8)")
    parser.add_argument("--layers", type=int, default=SHAPE["num_hidden_layers"])
    parser.add_argument("--traces", metavar="DIR", help="keep the profiler's recordings here")
    parser.add_argument("--apart", metavar="DIR", help="a process a program, its host's costs here")
    parser.add_argument("--machine", default="h200", help="the profile that those differ from (h200)")
    return parser.parse_args()


def measure_apart(name, context, options):
    """What a process of its own measures, and its host's costs before it."""
    label = file_name(name, context, options.batch)
    host = os.path.join(options.apart, label + ".toml")
    with open(host, "w", encoding="utf-8") as file:
        file.write(
            f"name = '{label}'\ntitle = '{options.machine}, its host before {label}'\n"
            f"base = '{options.machine}'\nstatus = 'measured'\n"
            "provenance = 'stallcast_capture.host_costs, right before the program'\n"
        )
    package = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python")
    subprocess.run(
        [sys.executable, "-m", "stallcast_capture.host_costs", "--out", host],
        env={**os.environ, "PYTHONPATH": package},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run.json")
        asked = ["--out", out, "--programs", name, "--context", str(context)]
        for option in ("batch", "steps", "warm_up", "layers", "traces"):
            if (value := getattr(options, option)) is not None:
                asked += [f"--{option.replace('_', '-')}", str(value)]
        subprocess.run([sys.executable, __file__, *asked], stdout=subprocess.DEVNULL, check=True)
        with open(out, encoding="utf-8") as file:
            (run,) = json.load(file)["runs"].values()
    return {**run, "host": os.path.basename(host)}


def main():
    options = parse()
    if not torch.cuda.is_available():
        sys.exit("transformers_steps: no GPU; run this where PyTorch sees one")
    for folder in (options.traces, options.apart):
        if folder:
            os.makedirs(folder, exist_ok=True)
    out = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "host": platform.processor() or platform.machine(),
        "layers": options.layers,
        "runs": {},
    }
    model = None if options.apart else make_model("cuda", options.layers)
    for context in map(int, options.context.split(",")):
        for name in options.programs.split(","):
            label = f"{name} {context} b{options.batch}"
            try:
                if options.apart:
                    out["runs"][label] = measure_apart(name, context, options)
                else:
                    out["runs"][label] = measure(name, model, context, options.batch, options)
            except Exception as error:  # the other programs still run
                out["runs"][label] = {"error": f"{type(error).__name__}: {error}"[:300]}
            torch.cuda.empty_cache()
            print(label, json.dumps(out["runs"][label]), flush=True)
            with open(options.out, "w", encoding="utf-8") as file:
                json.dump(out, file, indent=1)
                file.write("\n")


if __name__ == "__main__":
    main()
