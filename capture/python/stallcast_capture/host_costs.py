"""What PyTorch costs the thread that issues its operators: python3 -m stallcast_capture.host_costs

Measures single operators, as the section [pytorch] of a machine's profile names them, in under a
minute. It runs no model and no method. Without a GPU only what needs none is measured."""

import argparse
import contextlib
import datetime
import os
import random
import re
import statistics
import sys
import time

from .errors import CaptureError, run_command

ROUNDS = 15
TURNS = 40  # a round: so often each operator has its turn
SLOW = 2e-3  # s; an operator that takes longer has one turn a round
GRAPH_KERNELS = 500  # of a graph: so many that its launch does not count
GATHER_ROWS, GATHER_ROW_BYTES = 4096, 256
PIECES = (16 << 10, 128 << 10)  # bytes of a copy
BUSY = 0.2  # a spread that a quiet host does not show
SECTION = "pytorch"


class Cost:
    """One operator: its name in the profile, what it is, and how to call it."""

    def __init__(self, name, text, call, parts=1, waits=False):
        self.name, self.text, self.call = name, text, call
        self.parts = parts  # of a call, one of which is the cost
        self.waits = waits  # for the GPU, which is to be idle then
        self.rounds = []  # microseconds of a part, of each round

    def timed(self):
        """Seconds of one call."""
        begin = time.perf_counter()
        self.call()
        return time.perf_counter() - begin

    @property
    def median(self):
        return statistics.median(self.rounds)

    @property
    def spread(self):
        """Half the distance between the quartiles, as a share of the median."""
        quartiles = statistics.quantiles(self.rounds, n=4)
        return (quartiles[2] - quartiles[0]) / 2 / self.median


class GpuCost(Cost):
    """A cost that the GPU's own clock measures, from one event to another."""

    def __init__(self, name, text, call, parts, events):
        super().__init__(name, text, call, parts, waits=True)
        self.events = events

    def timed(self):
        begin, end = self.events
        begin.record()
        self.call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3


def measure(costs, settle):
    """Times operators in turn, in an order that changes: a program calls one after another, and
    the same one a hundred times over is faster than in any program. `settle` waits until nothing
    that was issued is still running."""
    slow = set()
    for cost in costs:
        cost.call()
        settle()
        if cost.timed() > SLOW:
            slow.add(cost)
    order = random.Random(0)
    for _ in range(ROUNDS):
        times = {cost: [] for cost in costs}
        for turn in range(TURNS):
            now = [cost for cost in costs if turn == 0 or cost not in slow]
            order.shuffle(now)
            settle()
            for cost in now:
                if cost.waits:
                    settle()
                times[cost].append(cost.timed())
        for cost in costs:
            cost.rounds.append(statistics.median(times[cost]) / cost.parts * 1e6)
    settle()


def _bytes_name(count):
    return f"{count >> 10} KiB"


def _costs_anywhere(torch):
    """What the thread spends in Python and in the dispatcher, whatever the device."""
    one = torch.zeros(1)
    block = torch.zeros(8, 64, 128)
    module = torch.nn.Identity()
    return [
        Cost("view", "a view: tensor.view()", lambda: block.view(64, 8, 128)),
        Cost("slice", "a slice: tensor[:, a:b]", lambda: block[:, 8:16]),
        Cost("module_call", "a call of an nn.Module that does nothing", lambda: module(one)),
        Cost("cpu_operator", "an operator on one number of the host", lambda: one.add_(1)),
    ]


def _costs_on_gpu(torch):
    gpu = {"device": "cuda", "dtype": torch.bfloat16}
    one = torch.zeros(1, **gpu)
    row = torch.zeros(1, 64, **gpu)
    weight = torch.zeros(64, 64, **gpu)
    scores = torch.randn(1, 4096, device="cuda")
    table = torch.zeros(4096, 128, **gpu)
    rows = torch.arange(64, device="cuda")
    scalar = torch.zeros((), dtype=torch.long, device="cuda")
    host_table = torch.zeros(64, 64, 128, dtype=torch.bfloat16)
    event = torch.cuda.Event()
    side = torch.cuda.Stream()
    side_event = torch.cuda.Event()
    side_event.record(side)

    def switch():
        with torch.cuda.stream(side):
            pass

    costs = [
        Cost("launch", "an operator in place, which launches one kernel", lambda: one.add_(1)),
        Cost("launch_allocating", "the same with a result of its own", lambda: one.add(1)),
        Cost("allocation", "an allocation from the caching allocator", lambda: one.new_empty(64)),
        Cost("zeros", "an allocation that is filled", lambda: torch.zeros(64, **gpu)),
        Cost("cast", "a tensor in another type", lambda: row.to(torch.float32)),
        Cost("reduce", "a mean over a dimension", lambda: row.mean(-1, keepdim=True)),
        Cost(
            "linear", "a linear layer of 64 x 64", lambda: torch.nn.functional.linear(row, weight)
        ),
        Cost("cat", "a concatenation of two", lambda: torch.cat((row, row), 1)),
        Cost("topk", "a top-k of 4,096", lambda: scores.topk(64)),
        Cost("sort", "an argsort of 4,096", lambda: scores.argsort()),
        Cost("index_select", "rows of a GPU tensor by a list", lambda: table.index_select(0, rows)),
        Cost("item", "item() of a GPU scalar, stream idle", scalar.item, waits=True),
        Cost("scalar_to_host", "cpu() of a GPU scalar, stream idle", scalar.cpu, waits=True),
        Cost(
            "index_by_gpu_scalar",
            "an index of a host tensor by it",
            lambda: host_table[scalar],
            waits=True,
        ),
        Cost("stream_context", "entering and leaving a stream", switch),
        Cost("event_record", "recording an event", event.record),
        Cost("event_wait", "a stream that waits for an event", lambda: side.wait_event(side_event)),
        Cost("synchronize", "synchronize(), GPU idle", torch.cuda.synchronize, waits=True),
        *_attention_costs(torch, gpu),
    ]
    for size in PIECES:
        elements = size // 2
        device = torch.zeros(elements, **gpu)
        pageable = torch.zeros(elements, dtype=torch.bfloat16)
        pinned = pageable.pin_memory()
        # A head's rows in a pool [token][head][dim].
        strided = torch.zeros(elements // 128, 8, 128, **gpu)[:, 3]
        pinned_rows = pinned.view(-1, 128)
        pinned_strided = torch.zeros(elements // 128, 8, 128, dtype=torch.bfloat16).pin_memory()[
            :, 3
        ]
        device_rows = device.view(-1, 128)

        def copying(target, source):
            return lambda: target.copy_(source, non_blocking=True)

        of = f" of {_bytes_name(size)}"
        costs += [
            Cost(f"copy_pinned@{size}", "a pinned copy to the GPU" + of, copying(device, pinned)),
            Cost(
                f"copy_strided@{size}",
                "one to a strided destination" + of,
                copying(strided, pinned_rows),
            ),
            Cost(
                f"copy_pageable@{size}",
                "a pageable one" + of,
                copying(device, pageable),
                waits=True,
            ),
            Cost(
                f"copy_back_pinned@{size}",
                "a pinned copy to the host" + of,
                copying(pinned, device),
            ),
            Cost(
                f"copy_back_strided@{size}",
                "one to strided pinned memory" + of,
                copying(pinned_strided, device_rows),
                waits=True,
            ),
            Cost(
                f"copy_back_pageable@{size}",
                "one to pageable memory" + of,
                copying(pageable, device),
                waits=True,
            ),
        ]
    if graph := _captured(torch, one, 1):
        costs.append(Cost("graph_launch", "a CUDA graph of one kernel", graph.replay))
    if graph := _captured(torch, one, GRAPH_KERNELS):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        text = f"on the GPU: a small kernel in a graph of {GRAPH_KERNELS}"
        costs.append(GpuCost("kernel", text, graph.replay, GRAPH_KERNELS, events))
    return costs


def _attention_costs(torch, gpu):
    """Attention over as many keys as the call before, and over one more: a backend that compiles a
    plan for each length does so anew."""
    most = 4096
    query = torch.zeros(1, 32, 1, 128, **gpu)
    keys = torch.zeros(1, 8, most, 128, **gpu)
    attention = torch.nn.functional.scaled_dot_product_attention
    lengths = iter(range(65, most))

    def attend(length):
        return attention(query, keys[:, :, :length], keys[:, :, :length], enable_gqa=True)

    return [
        Cost("sdpa", "attention over as many keys as before", lambda: attend(64)),
        Cost(
            "sdpa_new_length",
            "attention over a new number of keys",
            lambda: attend(next(lengths)),
        ),
    ]


def _captured(torch, tensor, kernels):
    """A CUDA graph of so many operators, each a kernel behind the one before, or None where this
    PyTorch cannot capture one."""
    with contextlib.suppress(RuntimeError):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(kernels):
                tensor.add_(1)
        return graph
    return None


def _gathers(torch):
    """Rows of host memory by a list of ids, with one, two, four, ... threads."""
    pool = torch.zeros(64 * GATHER_ROWS, GATHER_ROW_BYTES // 2, dtype=torch.bfloat16)
    ids = torch.randperm(len(pool), generator=torch.Generator().manual_seed(0))[:GATHER_ROWS]
    out = torch.empty(GATHER_ROWS, GATHER_ROW_BYTES // 2, dtype=torch.bfloat16)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    costs = []
    threads = 1
    while threads <= min(usable, 16):
        cost = Cost(
            f"gather_row@{threads}",
            f"a row of {GATHER_ROW_BYTES} B in a host gather, {threads} threads",
            lambda: torch.index_select(pool, 0, ids, out=out),
            parts=GATHER_ROWS,
        )
        costs.append((threads, cost))
        threads *= 2
    return costs


def _measure(torch, on_gpu):
    """All costs, in the order of the file."""
    settle = torch.cuda.synchronize if on_gpu else (lambda: None)
    costs = _costs_anywhere(torch) + (_costs_on_gpu(torch) if on_gpu else [])
    measure(costs, settle)
    had = torch.get_num_threads()
    try:
        for threads, cost in _gathers(torch):
            torch.set_num_threads(threads)
            measure([cost], settle)
            costs.append(cost)
    finally:
        torch.set_num_threads(had)
    return costs


def section(costs, source):
    """The section of a profile. A name with @ is a point of a curve."""
    quoted = "'" + source.replace("'", "") + "'"
    lines = [f"[{SECTION}]"]
    curves = {}
    for cost in costs:
        name, _, at = cost.name.partition("@")
        if at:
            curves.setdefault(name, []).append((float(at), cost.median))
        else:
            lines.append(f"{name} = {{ source = {quoted}, value = '{cost.median:.3f} us' }}")
    spread = statistics.median(cost.spread for cost in costs)
    lines.append(f"spread = {{ source = {quoted}, value = '{spread:.4f}' }}")
    for name, points in curves.items():
        axis = "threads" if name == "gather_row" else "piece_bytes"
        lines += [
            "",
            f"    [{SECTION}.{name}]",
            f"    {axis} = [ {', '.join(f'{at:.1f}' for at, _ in points)} ]",
            f"    source = {quoted}",
            f"    time_us = [ {', '.join(f'{micros:.5g}' for _, micros in points)} ]",
        ]
    return "\n".join(lines) + "\n"


def merged(profile, pytorch):
    """A profile's text with this section in place of the one that it has, if any."""
    table = re.compile(rf"^\s*\[\s*{SECTION}\s*[\].]")
    kept, inside = [], False
    for line in profile.splitlines():
        if re.match(r"^\s*\[", line):
            inside = bool(table.match(line))
        if not inside:
            kept.append(line)
    rest = "\n".join(kept).rstrip()
    return (rest + "\n\n" if rest else "") + pytorch


def _describe(torch, on_gpu):
    when = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    device = torch.cuda.get_device_name() if on_gpu else "no GPU"
    return f"measured, {when}, PyTorch {torch.__version__}, {device}"


def run(arguments):
    parser = argparse.ArgumentParser(
        prog="stallcast_capture.host_costs",
        description="Measures what PyTorch's operators cost the thread that issues them.",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        required=True,
        help=f"profile to write the section [{SECTION}] to; other sections in it stay",
    )
    parser.add_argument("--no-gpu", action="store_true", help="measure what needs no GPU alone")
    options = parser.parse_args(arguments)
    try:
        import torch
    except ImportError:
        raise CaptureError(
            "this Python has no torch", sys.executable, "install it (pip install torch)"
        ) from None

    on_gpu = torch.cuda.is_available() and not options.no_gpu
    try:
        with open(options.out, encoding="utf-8") as file:
            profile = file.read()
    except FileNotFoundError:
        profile = ""
    except (OSError, UnicodeDecodeError) as error:
        raise CaptureError(str(error), options.out, "name a profile or a new file") from None
    begin = time.perf_counter()
    with torch.inference_mode():
        costs = _measure(torch, on_gpu)
    source = _describe(torch, on_gpu)
    try:
        with open(options.out, "w", encoding="utf-8") as file:
            file.write(merged(profile, section(costs, source)))
    except OSError as error:
        raise CaptureError(error.strerror, options.out, "name a file that can be written") from None

    print(source)
    print(f"{'us a call':>9}  {'+-':>5}  operator")
    for cost in costs:
        print(f"{cost.median:9.3f}  {100 * cost.spread:3.0f} %  {cost.text}")
    if busy := [cost.name for cost in costs if cost.spread > BUSY]:
        print(f"Something else used this host: {len(busy)} of {len(costs)} values spread by more than")
        print(f"{100 * BUSY:.0f} %. Measure again when it is quiet.")
    if not on_gpu:
        print("Without a GPU: no launches, copies, events or item() were measured.")
    print(f"{options.out}: section [{SECTION}] written, {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    run_command("host_costs")
