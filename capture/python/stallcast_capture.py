#!/usr/bin/env python3
"""Records a transformers model's queries, keys and values, after RoPE, into a .kvt file.

In a program:

    import stallcast_capture
    with stallcast_capture.record(model, "run.kvt", layers=[0, 5], values=[5]) as recorder:
        model.generate(**inputs, max_new_tokens=256)

As a command, on a model folder and a file of token ids or a text:

    python3 stallcast_capture.py --model DIR --tokens ids_u16.bin --prompt 8192 --decode 256 \
        --layers 0-5 --values 2 --out run.kvt

Any causal decoder that transformers' attention interface serves works, with any of its
implementations (sdpa, eager, flash_attention_2, ...), on CUDA or CPU; one sequence (batch 1) a
file. Queries are kept for the prompt's last `query_window` tokens and for every decoded token;
keys, and values where asked for, for all tokens. Each step and each layer gets an NVTX range.

What a killed process loses: of each tensor the last decoded tokens, at most 16 in a buffer of the
hook, 64 more in flight from the device and 63 in the writer. An exception inside the `with` block
loses nothing that was recorded; the file then reads as truncated, because the run was.

`timeline(path)` records what the GPU does instead: kernels, copies, waits, CUDA calls and NVTX
ranges, through CUPTI, as a measured timeline:

    with stallcast_capture.timeline("timeline.kvt") as recorder:
        for step in range(64):
            with recorder.step(step):
                model(...)

The C++ writer is found through the environment variable STALLCAST_CAPTURE_LIBRARY, else beside this
file, else in the source tree's build/lib/capture.
"""

import argparse
import collections
import contextlib
import ctypes
import datetime
import math
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import time

import torch
import transformers

ABI_VERSION = 1
LIBRARY_NAME = "libstallcast_capture.so"
INJECTED_NAME = "libstallcast_inject.so"
QUERY, KEY, VALUE = 1, 2, 3
DTYPES = {torch.bfloat16: 1, torch.float16: 2, torch.float32: 3}
STAGED_STEPS = 16  # decode steps that share one copy to the host
STAGE_SLOTS = 4
PIECE_BYTES = 16 << 20  # of a prompt's tensor, copied to the host at once
PIECE_SLOTS = 3


class CaptureError(RuntimeError):
    """What went wrong, where, and what to do about it, in one line."""

    def __init__(self, what, where="", remedy=""):
        line = (f"{where}: " if where else "") + what + (f"; {remedy}" if remedy else "")
        super().__init__(" ".join(line.split()))


# The C interface: see recorder_c.h.


class _Pair(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class _TraceInfo(ctypes.Structure):
    _fields_ = [
        ("model_name", ctypes.c_char_p),
        ("layers", ctypes.c_int32),
        ("query_heads", ctypes.c_int32),
        ("kv_heads", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("hidden", ctypes.c_int32),
        ("intermediate", ctypes.c_int32),
        ("vocabulary", ctypes.c_int32),
        ("inverse_frequency_count", ctypes.c_int32),
        ("inverse_frequencies", ctypes.POINTER(ctypes.c_double)),
        ("rope_theta", ctypes.c_double),
        ("rope_attention_scaling", ctypes.c_double),
        ("rope_type", ctypes.c_char_p),
        ("softmax_scale", ctypes.c_double),
        ("machine", ctypes.c_char_p),
        ("provenance", ctypes.c_char_p),
        ("created", ctypes.c_char_p),
        ("software", ctypes.POINTER(_Pair)),
        ("parameters", ctypes.POINTER(_Pair)),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        ("query_window", ctypes.c_int32),
        ("chunk_tokens", ctypes.c_int32),
        ("queue_bytes", ctypes.c_int64),
    ]


class _Rows(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("layer", ctypes.c_int32),
        ("heads", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("first_token", ctypes.c_int64),
        ("tokens", ctypes.c_int64),
        ("head_stride", ctypes.c_int64),
        ("token_stride", ctypes.c_int64),
        ("data", ctypes.c_void_p),
    ]


class _GpuStats(ctypes.Structure):
    _fields_ = [
        ("rows", ctypes.c_int64),
        ("dropped", ctypes.c_int64),
        ("zero_stamps", ctypes.c_int64),
        ("unmatched", ctypes.c_int64),
    ]


class _Library:
    """The shared library; a status that is not 0 becomes a CaptureError."""

    def __init__(self):
        handle, text = ctypes.c_void_p, ctypes.c_char_p
        self.path = self._find()
        self._library = ctypes.CDLL(self.path)
        self._library.stallcast_last_error.restype = text
        self._library.stallcast_recorder_free.argtypes = [handle]
        self._library.stallcast_recorder_free.restype = None
        self._library.stallcast_gpu_recorder_free.argtypes = [handle]
        self._library.stallcast_gpu_recorder_free.restype = None
        arguments = {
            "stallcast_recorder_open": [
                text,
                ctypes.POINTER(_TraceInfo),
                ctypes.POINTER(_Options),
                ctypes.POINTER(handle),
            ],
            "stallcast_recorder_write": [handle, ctypes.POINTER(_Rows)],
            "stallcast_recorder_begin_decode": [handle, ctypes.c_int64],
            "stallcast_recorder_set_parameter": [handle, text, text],
            "stallcast_recorder_close": [handle],
            "stallcast_trace_read": [text, ctypes.POINTER(_Rows), handle, ctypes.c_int64],
            "stallcast_gpu_recorder_open": [text, text, ctypes.POINTER(handle)],
            "stallcast_gpu_recorder_push": [handle, ctypes.c_int32, ctypes.c_int32],
            "stallcast_gpu_recorder_pop": [handle],
            "stallcast_gpu_recorder_close": [handle, ctypes.POINTER(_GpuStats)],
        }
        for name, types in arguments.items():
            getattr(self._library, name).argtypes = types
        version = self._library.stallcast_abi_version()
        if version != ABI_VERSION:
            raise CaptureError(
                f"the library speaks interface version {version}, this file {ABI_VERSION}",
                self.path,
                "take both from the same version of Stallcast",
            )

    @staticmethod
    def _find():
        chosen = os.environ.get("STALLCAST_CAPTURE_LIBRARY")
        here = pathlib.Path(__file__).resolve().parent
        places = (
            [chosen]
            if chosen
            else [
                here / LIBRARY_NAME,
                here.parent.parent / "build" / "lib" / "capture" / LIBRARY_NAME,
            ]
        )
        for place in places:
            if os.path.isfile(place):
                return str(place)
        raise CaptureError(
            f"{LIBRARY_NAME} not found",
            " or ".join(str(place) for place in places),
            "build Stallcast (target stallcast_capture_shared), "
            "or point STALLCAST_CAPTURE_LIBRARY at it",
        )

    def __getattr__(self, name):
        function = getattr(self._library, "stallcast_" + name)

        def call(*arguments):
            if function(*arguments) != 0:
                raise CaptureError(self._library.stallcast_last_error().decode())

        self.__dict__[name] = call
        return call

    def free(self, recorder):
        self._library.stallcast_recorder_free(recorder)

    def free_gpu(self, recorder):
        self._library.stallcast_gpu_recorder_free(recorder)


def read(path, kind, layer):
    """Reads a recorded tensor back: (tensor [heads, tokens, dim], its first token)."""
    library = _Library()
    rows = _Rows(kind=kind, layer=layer)
    name = os.fsencode(path)
    library.trace_read(name, ctypes.byref(rows), None, 0)
    dtype = next(torch_type for torch_type, code in DTYPES.items() if code == rows.dtype)
    tensor = torch.empty(rows.heads, rows.tokens, rows.head_dim, dtype=dtype)
    size = tensor.numel() * tensor.element_size()
    library.trace_read(name, ctypes.byref(rows), tensor.data_ptr(), size)
    return tensor, rows.first_token


# What goes into the file's description.


def _text(value):
    return str(value).encode("utf-8", "replace")


def _pairs(values):
    array = (_Pair * (len(values) + 1))()
    for pair, (name, value) in zip(array, values.items()):
        pair.name, pair.value = _text(name), _text(value)
    return array


def _driver_version():
    with contextlib.suppress(OSError, IndexError):
        line = pathlib.Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
        return next(word for word in line.split() if word[0].isdigit() and "." in word)
    with contextlib.suppress(OSError, subprocess.SubprocessError, IndexError):
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        ).stdout.split()[0]
    return "unknown"


def _system():
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']} {platform.machine()}"
    except OSError:
        return f"{platform.system()} {platform.machine()}"


def _processor():
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def _describe_software(device):
    software = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "os": _system(),
    }
    if device.type == "cuda":
        software["cuda"] = torch.version.cuda or "unknown"
        software["driver"] = _driver_version()
    return software


def _describe_machine(device):
    processor = f"{_processor()}, {os.cpu_count()} processors"
    return (
        f"{torch.cuda.get_device_name(device)}; {processor}" if device.type == "cuda" else processor
    )


def _text_config(model):
    return model.config.get_text_config(decoder=True)


def _rotations(model):
    """How the decoder rotates queries and keys: (module, inverse frequencies), one for all layers,
    one a layer, or one for each kind of layer."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    return [
        (module, buffer)
        for module in (decoder or model).modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name.endswith("inv_freq") and "original" not in name
    ]


def _rotation(model):
    """That of all layers; (None, None) where there is none or layers differ."""
    rotations = _rotations(model)
    if any(not torch.equal(frequencies, rotations[0][1]) for _, frequencies in rotations[1:]):
        return None, None
    return rotations[0] if rotations else (None, None)


class _Description:
    """A _TraceInfo and what it points at."""

    def __init__(self, model, device, name, provenance, parameters):
        config = _text_config(model)
        heads = config.num_attention_heads
        rope = getattr(config, "rope_parameters", None) or {}
        rotary, frequencies = _rotation(model)
        several = rotary is None and bool(_rotations(model))
        scale = next(
            (
                m.scaling
                for m in model.modules()
                if hasattr(m, "layer_idx") and isinstance(getattr(m, "scaling", None), float)
            ),
            0.0,
        )
        path = getattr(config, "name_or_path", "") or getattr(model.config, "name_or_path", "")
        self.info = _TraceInfo(
            model_name=_text(name or os.path.basename(os.path.normpath(path or config.model_type))),
            layers=config.num_hidden_layers,
            query_heads=heads,
            kv_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            hidden=config.hidden_size,
            intermediate=getattr(config, "intermediate_size", 0) or 0,
            vocabulary=config.vocab_size,
            # One angle for all layers would be wrong for some: then none is given.
            rope_theta=0.0
            if several
            else rope.get("rope_theta") or getattr(config, "rope_theta", 0.0) or 0.0,
            rope_type=_text(
                "several"
                if several
                else rope.get("rope_type", "default") if rotary is not None else "none"
            ),
            rope_attention_scaling=float(getattr(rotary, "attention_scaling", 1.0) or 1.0),
            softmax_scale=scale,
            machine=_text(_describe_machine(device)),
            provenance=_text(provenance),
            created=_text(
                datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            ),
        )
        if rotary is not None:
            frequencies = frequencies.double().flatten().tolist()
            self._frequencies = (ctypes.c_double * len(frequencies))(*frequencies)
            self.info.inverse_frequencies = self._frequencies
            self.info.inverse_frequency_count = len(frequencies)
        self._software = _pairs(_describe_software(device))
        self._parameters = _pairs(parameters)
        self.info.software = self._software
        self.info.parameters = self._parameters


# From the model's memory to the writer.


@torch.inference_mode(False)
def _buffer(shape, dtype, **where):
    """A tensor that can be written inside and outside of inference mode."""
    return torch.empty(shape, dtype=dtype, **where)


class _Channel:
    """Brings rows to the writer in order.

    On CUDA, rows are copied to pinned buffers on a stream of their own, and handed over once their
    event has passed; a bounded number of buffers is in flight. On the CPU they are handed over at
    once."""

    def __init__(self, library, recorder, device):
        self._library = library
        self._recorder = recorder
        self._device = device
        self._cuda = device.type == "cuda"
        self._rows = _Rows()
        self._waiting = collections.deque()  # (event or None, function to hand over), in order
        self._stages = None  # decode: a ring of (device buffer, host buffer)
        self._layout = None  # what a stage's row holds: [(kind, layer, heads)]
        self._steps = 0  # staged in the current stage
        self._turn = 0
        self._first_token = 0
        if self._cuda:
            self._stream = torch.cuda.Stream(device)
            self._copied = torch.cuda.Event()
            self._pieces = collections.deque(
                _buffer(PIECE_BYTES, torch.uint8, pin_memory=True) for _ in range(PIECE_SLOTS)
            )

    def wait_for_copies(self):
        """Makes the model's stream wait for copies out of its memory, before it reuses it."""
        if self._cuda:
            torch.cuda.current_stream(self._device).wait_event(self._copied)

    def send(self, kind, layer, first_token, tensor):
        """Sends [heads, tokens, dim]."""
        self._submit_stage()
        if not self._cuda:
            self.poll()
            if tensor.stride(2) != 1:
                tensor = tensor.contiguous()
            self._write(kind, layer, first_token, tensor, tensor.stride(0), tensor.stride(1))
            return
        heads, tokens, dim = tensor.shape
        step = max(1, PIECE_BYTES // (heads * dim * tensor.element_size()))
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        tensor.record_stream(self._stream)
        for start in range(0, tokens, step):
            part = tensor[:, start : start + step]
            buffer = self._take_piece()
            size = part.numel() * part.element_size()
            host = buffer[:size].view(tensor.dtype).view(part.shape)
            with torch.cuda.stream(self._stream):
                host.copy_(part, non_blocking=True)
                event = torch.cuda.Event()
                event.record(self._stream)
                self._copied = event

            def hand_over(first=first_token + start, host=host, buffer=buffer):
                self._write(kind, layer, first, host, host.stride(0), host.stride(1))
                self._pieces.append(buffer)

            self._waiting.append((event, hand_over))

    def stage(self, first_token, parts):
        """Stages one decoded token: [(kind, layer, [heads, dim])], the same list every time."""
        layout = [(kind, layer, part.shape[0]) for kind, layer, part in parts]
        if layout != self._layout:
            self._submit_stage()
            self._make_stages(layout, parts[0][2])
        if self._steps == 0:
            self._first_token = first_token
            self._free_stage()
        target = self._stages[self._turn][0][self._steps]
        torch.cat([part for _, _, part in parts], out=target)
        self._steps += 1
        if self._steps == STAGED_STEPS:
            self._submit_stage()

    def begin_decode(self, prompt_tokens):
        self._waiting.append(
            (None, lambda: self._library.recorder_begin_decode(self._recorder, prompt_tokens))
        )

    def poll(self):
        """Hands over what has arrived."""
        while self._waiting and (self._waiting[0][0] is None or self._waiting[0][0].query()):
            self._waiting.popleft()[1]()

    def drain(self):
        """Hands over everything."""
        self._submit_stage()
        while self._waiting:
            self._hand_over_oldest()

    def _hand_over_oldest(self):
        event, hand_over = self._waiting.popleft()
        if event is not None:
            event.synchronize()
        hand_over()

    def _take_piece(self):
        while not self._pieces:
            self._hand_over_oldest()
        return self._pieces.popleft()

    def _make_stages(self, layout, like):
        self.drain()
        self._layout = layout
        shape = (STAGED_STEPS, sum(heads for _, _, heads in layout), like.shape[1])
        self._stages = []
        self._busy = [False] * STAGE_SLOTS
        for _ in range(STAGE_SLOTS):
            host = _buffer(shape, like.dtype, pin_memory=self._cuda)
            device = _buffer(shape, like.dtype, device=like.device) if self._cuda else host
            self._stages.append((device, host))

    def _free_stage(self):
        while self._busy[self._turn]:
            self._hand_over_oldest()

    def _submit_stage(self):
        if self._steps == 0:
            return
        turn, steps, first = self._turn, self._steps, self._first_token
        device, host = self._stages[turn]
        event = None
        if self._cuda:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(self._stream):
                host[:steps].copy_(device[:steps], non_blocking=True)
                event = torch.cuda.Event()
                event.record(self._stream)
                self._copied = event

        def hand_over():
            start = 0
            for kind, layer, heads in self._layout:
                rows = host[:steps, start : start + heads].transpose(0, 1)
                self._write(kind, layer, first, rows, rows.stride(0), rows.stride(1))
                start += heads
            self._busy[turn] = False

        self._busy[turn] = True
        self._waiting.append((event, hand_over))
        self._turn = (turn + 1) % STAGE_SLOTS
        self._steps = 0
        if not self._cuda:
            self.poll()

    def _write(self, kind, layer, first_token, tensor, head_stride, token_stride):
        rows = self._rows
        rows.kind, rows.layer, rows.first_token = kind, layer, first_token
        rows.dtype = DTYPES[tensor.dtype]
        rows.heads, rows.tokens, rows.head_dim = tensor.shape
        rows.head_stride, rows.token_stride = head_stride, token_stride
        rows.data = tensor.data_ptr()
        self._library.recorder_write(self._recorder, ctypes.byref(rows))


# The hook. A forward hook must return None, which the NVTX calls do not.


def _nvtx_push(name):
    def push(*_):
        torch.cuda.nvtx.range_push(name)

    return push


def _nvtx_pop(*_):
    torch.cuda.nvtx.range_pop()


class _AttentionHook:
    """Puts `function(base, module, ...)` in place of the attention implementation that the model
    uses, under the same name, so that masks and kernels are chosen as before."""

    def __init__(self, model, function):
        if not hasattr(transformers, "AttentionInterface"):
            raise CaptureError(
                "this transformers has no AttentionInterface",
                transformers.__version__,
                "install 4.51 or newer",
            )
        self._name = _text_config(model)._attn_implementation or "eager"
        if self._name == "eager" and not hasattr(transformers.AttentionInterface, "get_interface"):
            # Models of these versions call their own function without asking the table.
            raise CaptureError(
                f"eager attention cannot be recorded with transformers {transformers.__version__}",
                "attn_implementation",
                'load the model with "sdpa", or install transformers 5',
            )
        self._function = function
        interfaces = {
            id(interface): interface
            for interface in map(self._interface_of, model.modules())
            if interface is not None
        }
        if not interfaces:
            raise CaptureError(
                f"{type(model).__name__} does not use transformers' attention interface",
                "model",
                "use a model class that comes with transformers",
            )
        shared = transformers.AttentionInterface._global_mapping
        self._mappings = [shared] + [
            interface._local_mapping
            for interface in interfaces.values()
            if self._name in interface._local_mapping
        ]
        self._originals = [mapping.get(self._name) for mapping in self._mappings]
        self._wrappers = [self._wrap(original) for original in self._originals]
        for mapping, wrapper in zip(self._mappings, self._wrappers):
            mapping[self._name] = wrapper

    @staticmethod
    def _interface_of(module):
        if not hasattr(module, "layer_idx"):
            return None
        return getattr(sys.modules.get(type(module).__module__), "ALL_ATTENTION_FUNCTIONS", None)

    def _wrap(self, original):
        @torch.compiler.disable
        def attention(module, *arguments, **keywords):
            # "eager" is not in the table: each modelling file has its own.
            base = original or sys.modules[type(module).__module__].eager_attention_forward
            return self._function(base, module, *arguments, **keywords)

        return attention

    def remove(self):
        # Another recorder may have come in between, which calls this one's wrapper until it ends.
        self._function = lambda base, module, *arguments, **keywords: base(
            module, *arguments, **keywords
        )
        for mapping, original, wrapper in zip(self._mappings, self._originals, self._wrappers):
            if mapping.get(self._name) is not wrapper:
                continue
            if original is None:
                mapping.pop(self._name, None)
            else:
                mapping[self._name] = original


class Recorder:
    """Records one sequence of a model between __enter__ and __exit__; see record()."""

    def __init__(
        self,
        model,
        path,
        layers=None,
        query_window=64,
        values=(),
        prompt_tokens=None,
        name="",
        provenance="",
        parameters=None,
    ):
        self.model = model
        self.path = os.fspath(path)
        config = _text_config(model)
        self.layers = sorted(set(range(config.num_hidden_layers) if layers is None else layers))
        self.values = sorted(set(values))
        for layer in [*self.layers, *self.values]:
            if not 0 <= layer < config.num_hidden_layers:
                raise CaptureError(
                    f"no layer {layer}",
                    "layers, values",
                    f"give 0 to {config.num_hidden_layers - 1}",
                )
        if not self.layers:
            raise CaptureError("no layers to record", "layers", "name at least one")
        if not set(self.values) <= set(self.layers):
            raise CaptureError(
                "values asked for layers that are not recorded",
                "values",
                "name these layers in `layers` too",
            )
        self.query_window = query_window
        self.prompt_tokens = prompt_tokens
        self.tokens = 0  # recorded so far
        self.decoding = False
        self._name = name
        self._provenance = provenance
        self._parameters = {
            "layers": ",".join(map(str, self.layers)),
            "values": ",".join(map(str, self.values)),
            "query_window": query_window,
            "attention": config._attn_implementation,
            **(
                {"sliding_window": config.sliding_window}
                if getattr(config, "sliding_window", None)
                else {}
            ),
            **(parameters or {}),
        }
        self._wanted = frozenset(self.layers)
        self._wanted_values = frozenset(self.values)
        self._modules = frozenset(map(id, model.modules()))
        self._step = None  # the rows of the running step, by layer
        self._step_tokens = 0
        self._handles = []
        self._hook = None
        self._recorder = None

    def __enter__(self):
        device = next(self.model.parameters()).device
        self._device = device
        self._nvtx = device.type == "cuda"
        self._library = _Library()
        description = _Description(
            self.model, device, self._name, self._provenance, self._parameters
        )
        self._frequencies = self._current_frequencies()
        options = _Options(self.query_window, 64, 256 << 20)
        recorder = ctypes.c_void_p()
        self._library.recorder_open(
            os.fsencode(self.path),
            ctypes.byref(description.info),
            ctypes.byref(options),
            ctypes.byref(recorder),
        )
        self._recorder = recorder
        try:
            self._channel = _Channel(self._library, recorder, device)
            self._attach()
        except BaseException:
            self._detach()
            self._free()
            raise
        return self

    def __exit__(self, kind, error, trace):
        self._detach()
        try:
            if kind is None:
                self._finish()
            else:
                # The file keeps what arrived, and reads as truncated.
                with contextlib.suppress(Exception):
                    self._channel.drain()
        finally:
            self._free()

    def set_parameter(self, name, value):
        """Adds to the parameters in the file's description."""
        self._library.recorder_set_parameter(self._recorder, _text(name), _text(value))

    def _finish(self):
        self._channel.drain()
        if self._frequencies != self._current_frequencies():
            self.set_parameter("rope_changed", "the inverse frequencies changed during the run")
        self._library.recorder_close(self._recorder)

    def _free(self):
        if self._recorder is not None:
            self._library.free(self._recorder)
            self._recorder = None

    def _current_frequencies(self):
        return [frequencies.tolist() for _, frequencies in _rotations(self.model)]

    def _attach(self):
        self._hook = _AttentionHook(self.model, self._attention)
        self._handles.append(
            self.model.register_forward_pre_hook(self._begin_step, with_kwargs=True)
        )
        self._handles.append(self.model.register_forward_hook(self._end_step))
        if self._nvtx:
            layers = _text_config(self.model).num_hidden_layers
            decoder = next(
                (
                    m
                    for m in self.model.modules()
                    if isinstance(m, torch.nn.ModuleList) and len(m) == layers
                ),
                [],
            )
            for index, layer in enumerate(decoder):
                self._handles.append(
                    layer.register_forward_pre_hook(_nvtx_push(f"stallcast layer {index}"))
                )
                self._handles.append(layer.register_forward_hook(_nvtx_pop))

    def _detach(self):
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    @torch.compiler.disable
    def _begin_step(self, module, arguments, keywords):
        self._step = {}
        self._step_tokens = 0
        self._channel.wait_for_copies()
        cache = keywords.get("past_key_values")
        # A static cache counts on the device: asking it every step would stall the model.
        length = cache.get_seq_length() if cache is not None else 0
        if self.tokens == 0 or isinstance(length, int):
            length = int(length)
            if length != self.tokens:
                raise CaptureError(
                    f"the model's cache holds {length} tokens, {self.tokens} are recorded",
                    self.path,
                    "record one sequence a file, from its first token, with use_cache=True and "
                    "without rolling tokens back",
                )
        mask = keywords.get("attention_mask")
        if (
            self.tokens == 0
            and isinstance(mask, torch.Tensor)
            and mask.dim() == 2
            and not mask.all()
        ):
            raise CaptureError(
                "the prompt is padded", "attention_mask", "pass one prompt without padding"
            )
        if self._nvtx:
            torch.cuda.nvtx.range_push(f"stallcast step at token {self.tokens}")

    def _attention(self, base, module, query, key, value, *arguments, **keywords):
        layer = getattr(module, "layer_idx", None)
        if layer in self._wanted and id(module) in self._modules:
            self._take(layer, query, key, value)
        return base(module, query, key, value, *arguments, **keywords)

    @torch.no_grad()
    def _take(self, layer, query, key, value):
        place = f"layer {layer}, token {self.tokens}"
        if self._step is None:
            raise CaptureError(
                "attention ran outside a call of the recorded model",
                place,
                "call the model that was given to record()",
            )
        if layer in self._step:
            raise CaptureError(
                "a layer ran its attention twice in a step",
                place,
                "use a decoder without cross-attention",
            )
        if query.dim() != 4 or query.shape[0] != 1:
            raise CaptureError(
                f"queries have the shape {list(query.shape)}",
                place,
                "run one sequence: batch 1, one beam",
            )
        if not query.dtype == key.dtype == value.dtype or query.dtype not in DTYPES:
            raise CaptureError(
                f"element types {query.dtype}, {key.dtype}, {value.dtype}",
                place,
                "run the model in bfloat16, float16 or float32",
            )
        if query.device != self._device:
            raise CaptureError(
                f"the layer runs on {query.device}, the model starts on {self._device}",
                place,
                "put the whole model on one device",
            )
        count = query.shape[2]
        if not self._step:
            self._start(count)
        # The new tokens are the last ones (a sliding window's cache has dropped the oldest), except
        # in a static cache, which is padded behind them.
        start = min(self.tokens, key.shape[2] - count)
        wanted = self._step[layer] = [(QUERY, query[0]), (KEY, key[0, :, start : start + count])]
        if layer in self._wanted_values:
            wanted.append((VALUE, value[0, :, start : start + count]))
        if count > 1 or not self.decoding:
            for kind, tensor in wanted:
                skipped = 0
                if kind == QUERY and not self.decoding:
                    skipped = max(0, count - self.query_window)
                if skipped < count:
                    self._channel.send(kind, layer, self.tokens + skipped, tensor[:, skipped:])
            self._step[layer] = ()  # holds no memory of the model

    def _start(self, count):
        """Settles whether a step of `count` tokens is prompt or decoding."""
        self._step_tokens = count
        if self.decoding:
            return
        if self.prompt_tokens is None:
            ends = count == 1 and self.tokens > 0
        else:
            ends = self.tokens == self.prompt_tokens
            if not ends and self.tokens + count > self.prompt_tokens:
                raise CaptureError(
                    f"a step takes tokens {self.tokens} to {self.tokens + count}, across the end "
                    f"of the prompt of {self.prompt_tokens}",
                    "prompt_tokens",
                    "give the prompt's true length",
                )
        if ends:
            self.decoding = True
            self.prompt_tokens = self.tokens
            self._channel.begin_decode(self.tokens)

    @torch.compiler.disable
    @torch.no_grad()
    def _end_step(self, module, arguments, output):
        step, self._step = self._step, None
        missing = self._wanted.difference(step)
        if missing:
            raise CaptureError(
                f"layers {sorted(missing)} did not call the attention interface",
                self.path,
                "record layers of softmax attention only",
            )
        if self.decoding and self._step_tokens == 1:
            parts = [
                (kind, layer, tensor[:, 0])
                for layer, tensors in step.items()
                for kind, tensor in tensors
            ]
            self._channel.stage(self.tokens, parts)
        self.tokens += self._step_tokens
        self._channel.poll()
        if self._nvtx:
            torch.cuda.nvtx.range_pop()


def record(
    model,
    path,
    layers=None,
    query_window=64,
    values=(),
    prompt_tokens=None,
    name="",
    provenance="",
    parameters=None,
):
    """A context manager that records what `model` computes inside it into the file `path`.

    layers: whose queries and keys are kept, all by default; values: whose values are kept too.
    prompt_tokens: needed only where the prompt comes in several calls, of which one has one token;
    else the prompt ends before the first call of one token. name, provenance, parameters: texts for
    the file's description. Raises CaptureError."""
    return Recorder(
        model, path, layers, query_window, values, prompt_tokens, name, provenance, parameters
    )


class Timeline:
    """Records GPU activity between __enter__ and __exit__; see timeline()."""

    def __init__(self, path, title=""):
        self.path = os.fspath(path)
        self._title = title
        self._recorder = None
        self.stats = _GpuStats()
        self._library = _Library()
        # NVTX looks here at its first range; the library passes it on to the CUPTI in use.
        injected = os.path.join(os.path.dirname(self._library.path), INJECTED_NAME)
        if os.path.isfile(injected):
            os.environ.setdefault("NVTX_INJECTION64_PATH", injected)

    def __enter__(self):
        recorder = ctypes.c_void_p()
        self._library.gpu_recorder_open(
            os.fsencode(self.path), _text(self._title), ctypes.byref(recorder)
        )
        self._recorder = recorder
        return self

    def __exit__(self, kind, error, trace):
        try:
            if kind is None:
                torch.cuda.synchronize()
                self._library.gpu_recorder_close(self._recorder, ctypes.byref(self.stats))
        finally:
            self._library.free_gpu(self._recorder)
            self._recorder = None

    @contextlib.contextmanager
    def step(self, step):
        """CUDA calls that this thread makes inside belong to this step."""
        self._library.gpu_recorder_push(self._recorder, step, -1)
        try:
            yield
        finally:
            self._library.gpu_recorder_pop(self._recorder)


def timeline(path, title=""):
    """A context manager that records what the GPU does inside it into the file `path`; its step()
    says which step CUDA calls belong to. NVTX ranges are recorded where this is called before the
    first one of the process. Raises CaptureError, also where another profiler (torch's own, Nsight)
    holds CUPTI."""
    return Timeline(path, title)


# The command.


def _layer_list(text):
    layers = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        try:
            layers.extend(range(int(first), int(last or first) + 1))
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"'{part}' is no layer or range: write 0-3,5"
            ) from None
    return layers


def _parse(arguments):
    parser = argparse.ArgumentParser(
        description="Runs a model on a prompt and decodes; records its queries, keys and values."
    )
    parser.add_argument("--model", required=True, help="folder or name of the model")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--tokens", help="file of little-endian token ids")
    source.add_argument(
        "--prompt-text", metavar="FILE", help="text file, split by the model's tokenizer"
    )
    parser.add_argument(
        "--token-bytes", type=int, choices=[2, 4], default=2, help="bytes of an id (2)"
    )
    parser.add_argument(
        "--offset", type=int, default=0, help="first token of the prompt in the file (0)"
    )
    parser.add_argument("--prompt", type=int, help="tokens of the prompt (all there are)")
    parser.add_argument("--decode", type=int, default=256, help="tokens to decode (256)")
    parser.add_argument(
        "--chunk", type=int, default=0, help="prompt tokens a call (0: all at once)"
    )
    parser.add_argument("--layers", type=_layer_list, help="layers to record, as 0-3,5 (all)")
    parser.add_argument(
        "--values", type=_layer_list, default=[], help="layers whose values to record (none)"
    )
    parser.add_argument(
        "--query-window",
        type=int,
        default=64,
        help="last prompt tokens whose queries are kept (64)",
    )
    parser.add_argument("--out", required=True, help="the .kvt file to write")
    parser.add_argument(
        "--timeline",
        metavar="FILE",
        help="also record the GPU's timeline of 64 steps, without recording tensors, to this .kvt",
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--dtype", choices=["auto", "bfloat16", "float16", "float32"], default="auto"
    )
    parser.add_argument("--attention", default="sdpa", help="attention implementation (sdpa)")
    parser.add_argument(
        "--temperature", type=float, default=0.8, help="0: the likeliest token (0.8)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="", help="name of the model in the file")
    parser.add_argument("--provenance", default="", help="who captured this, and from what")
    parser.add_argument(
        "--no-baseline",
        action="store_true",
        help="do not time steps without recording beside those with",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="read the file back and compare its keys and values with the model's cache",
    )
    return parser.parse_args(arguments)


def _load_tokens(options, model):
    path = options.tokens or options.prompt_text
    try:
        data = pathlib.Path(path).read_bytes()
    except OSError as error:
        raise CaptureError(error.strerror, path, "name a readable file") from None
    if options.tokens:
        dtype = {2: torch.uint16, 4: torch.int32}[options.token_bytes]
        usable = len(data) - len(data) % options.token_bytes
        tokens = (
            torch.frombuffer(bytearray(data[:usable]), dtype=dtype).long()
            if usable
            else torch.tensor([])
        )
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
        tokens = tokenizer(data.decode("utf-8", "replace"), return_tensors="pt").input_ids[0]
    count = options.prompt if options.prompt is not None else len(tokens) - options.offset
    if options.offset < 0 or count < 2 or options.offset + count > len(tokens):
        raise CaptureError(
            f"tokens {options.offset} to {options.offset + count} of {len(tokens)}",
            path,
            "choose --offset and --prompt (at least 2) inside the file",
        )
    tokens = tokens[options.offset : options.offset + count]
    vocabulary = _text_config(model).vocab_size
    if tokens.min() < 0 or tokens.max() >= vocabulary:
        raise CaptureError(
            f"a token id is not below the vocabulary of {vocabulary}",
            path,
            "use this model's tokens and the right --token-bytes",
        )
    return tokens


class _Run:
    """Prefill and decode of one model, step by step."""

    def __init__(self, model, tokens, options):
        self.model = model
        self.tokens = tokens.to(model.device).unsqueeze(0)
        self.chunk = options.chunk or len(tokens)
        self.temperature = options.temperature
        self.generator = torch.Generator(model.device).manual_seed(options.seed)
        self.loss = math.nan  # mean over the prompt's last tokens, nats
        self.loss_tokens = 0

    def prefill(self):
        """Runs the prompt in a new cache; returns the seconds."""
        self.cache = transformers.DynamicCache(config=self.model.config)
        length = self.tokens.shape[1]
        self._synchronize()
        begin = time.perf_counter()
        for first in range(0, length, self.chunk):
            part = self.tokens[:, first : first + self.chunk]
            kept = min(part.shape[1], 1025)
            logits = self.model(
                input_ids=part, past_key_values=self.cache, use_cache=True, logits_to_keep=kept
            ).logits
        self._synchronize()
        seconds = time.perf_counter() - begin
        self.loss_tokens = kept - 1
        if self.loss_tokens:
            self.loss = torch.nn.functional.cross_entropy(
                logits[0, :-1].float(), part[0, -self.loss_tokens :]
            ).item()
        self.next = self._choose(logits)
        return seconds

    def decode(self, steps, marker=contextlib.nullcontext):
        """Decodes, each step in a marker(step); returns the seconds of each step."""
        seconds = []
        for step in range(steps):
            begin = time.perf_counter()
            with marker(step):
                logits = self.model(
                    input_ids=self.next, past_key_values=self.cache, use_cache=True
                ).logits
                self.next = self._choose(logits)
                self.next.item()  # as generate() does to look for the end
            seconds.append(time.perf_counter() - begin)
        return seconds

    def _choose(self, logits):
        last = logits[:, -1].float()
        if self.temperature <= 0:
            return last.argmax(-1, keepdim=True)
        return torch.multinomial((last / self.temperature).softmax(-1), 1, generator=self.generator)

    def _synchronize(self):
        if self.model.device.type == "cuda":
            torch.cuda.synchronize()


def _check(path, recorder, cache):
    """Compares the file with the model's own cache, bit by bit."""
    for layer in recorder.layers:
        kinds = [(KEY, cache.layers[layer].keys)]
        if layer in recorder.values:
            kinds.append((VALUE, cache.layers[layer].values))
        for kind, expected in kinds:
            found, first = read(path, kind, layer)
            expected = expected[0, :, : recorder.tokens].cpu()
            if first != 0 or found.shape != expected.shape or not torch.equal(found, expected):
                raise CaptureError(
                    "the file differs from the model's cache",
                    f"{path}, layer {layer}",
                    "report this as a bug",
                )
        queries, first = read(path, QUERY, layer)
        prompt = recorder.prompt_tokens or recorder.tokens
        if (
            first != max(0, prompt - recorder.query_window)
            or first + queries.shape[1] != recorder.tokens
        ):
            raise CaptureError(
                f"queries cover tokens {first} to {first + queries.shape[1]}",
                f"{path}, layer {layer}",
                "report this as a bug",
            )
    return (
        f"keys of {len(recorder.layers)} layers, values of {len(recorder.values)}, "
        f"{recorder.tokens:,} tokens: equal to the model's cache, bit by bit"
    )


def _change(with_recording, without):
    return (
        f"{1e3 * with_recording:.3f} ms recording, {1e3 * without:.3f} ms without "
        f"({100 * (with_recording / without - 1):+.1f} %)"
    )


def _load_model(options):
    dtype = "auto" if options.dtype == "auto" else getattr(torch, options.dtype)
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            options.model, attn_implementation=options.attention, dtype=dtype
        )
        return model.eval().to(options.device)
    except torch.OutOfMemoryError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise CaptureError(
            str(error).splitlines()[0],
            options.model,
            "name a folder with config.json and weights, and a device that is there",
        ) from None


def _own_command():
    """This command; of absolute paths, which mean nothing on another machine, the last part."""
    return shlex.join(
        os.path.basename(word) if os.path.isabs(word) else word
        for word in [os.path.basename(sys.argv[0]), *sys.argv[1:]]
    )


@torch.inference_mode()
def _run(options):
    if options.decode < 0 or options.chunk < 0 or options.query_window < 0:
        raise CaptureError("a negative number of tokens", "command line", "give 0 or more")
    _Library()  # its absence shows before the model is loaded and run
    gpu = timeline(options.timeline, title=_own_command()) if options.timeline else None
    model = _load_model(options)
    tokens = _load_tokens(options, model)
    limit = getattr(_text_config(model), "max_position_embeddings", None) or sys.maxsize
    if len(tokens) + options.decode > limit:
        raise CaptureError(
            f"{len(tokens)} + {options.decode} tokens, the model has {limit} positions",
            options.model,
            "shorten --prompt or --decode",
        )
    parameters = {
        "prompt": len(tokens),
        "decode": options.decode,
        "chunk": options.chunk,
        "tokens_file": os.path.basename(options.tokens or options.prompt_text),
        "offset": options.offset,
        "temperature": options.temperature,
        "seed": options.seed,
        "command": _own_command(),
    }
    recording = record(
        model,
        options.out,
        layers=options.layers,
        query_window=options.query_window,
        values=options.values,
        prompt_tokens=len(tokens),
        name=options.name,
        provenance=options.provenance,
        parameters=parameters,
    )

    # Steps without recording are timed before and after those with, so that a drift shows in both.
    spare = limit - len(tokens) - options.decode
    timed = min(64, options.decode, spare // 2 if options.timeline else spare)
    if options.no_baseline:
        timed = 0
    if options.timeline and not timed:
        raise CaptureError(
            "no steps left to record a timeline of", "--timeline", "lower --decode or --prompt"
        )
    run = _Run(model, tokens, options)
    without = []
    if timed:
        run.prefill()  # warm-up
        prefill_without = run.prefill()
        run.decode(min(16, timed))  # warm-up
        without = run.decode(timed)
        run = _Run(model, tokens, options)
    begin = time.perf_counter()
    with recording as recorder:
        prefill_with = run.prefill()
        with_recording = run.decode(options.decode)
        recorder.set_parameter("prompt_loss_nats", f"{run.loss:.4f}")
    total = time.perf_counter() - begin
    if timed:
        without += run.decode(timed)
    if gpu:
        with gpu:
            traced = run.decode(timed, gpu.step)

    print(f"model    {model.config.model_type}, {_describe_machine(model.device)}")
    print(
        f"prompt   {len(tokens):,} tokens; mean loss over its last {run.loss_tokens:,} tokens "
        f"{run.loss:.3f} nats"
    )
    if timed:
        print(f"prefill  {_change(prefill_with, prefill_without)}")
        print(
            f"step     {_change(statistics.median(with_recording), statistics.median(without))}, "
            f"medians of {len(with_recording)} and {len(without)}"
        )
    elif with_recording:
        print(f"step     {1e3 * statistics.median(with_recording):.3f} ms recording, median")
    if gpu:
        print(
            f"timeline {options.timeline}: {gpu.stats.rows:,} rows, {gpu.stats.dropped:,} records "
            f"dropped; step {_change(statistics.median(traced), statistics.median(without))}"
        )
    size = os.path.getsize(options.out)
    print(
        f"file     {options.out}: {size / 1e6:.2f} MB, {recorder.tokens:,} tokens, "
        f"layers {','.join(map(str, recorder.layers))}; whole recording {total:.2f} s"
    )
    if options.check:
        print(f"check    {_check(options.out, recorder, run.cache)}")


def main():
    transformers.utils.logging.disable_progress_bar()
    try:
        try:
            _run(_parse(sys.argv[1:]))
        except torch.OutOfMemoryError as error:
            raise CaptureError(
                str(error).split(". ")[0],
                "device",
                "shorten --prompt, or run it in parts with --chunk",
            ) from None
    except CaptureError as error:
        print(f"stallcast_capture: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
