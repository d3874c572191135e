"""The C++ writer through its C interface: capture/recorder_c.h and capture/gpu_recorder_c.h."""

import ctypes
import os
import pathlib

import torch

from .errors import CaptureError

ABI_VERSION = 2
LIBRARY_NAME = "libstallcast_capture.so"
INJECTED_NAME = "libstallcast_inject.so"
QUERY, KEY, VALUE = 1, 2, 3
DTYPES = {torch.bfloat16: 1, torch.float16: 2, torch.float32: 3}


class Pair(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class TraceInfo(ctypes.Structure):
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
        ("software", ctypes.POINTER(Pair)),
        ("parameters", ctypes.POINTER(Pair)),
    ]


class Attention(ctypes.Structure):
    _fields_ = [
        ("window", ctypes.c_int32),
        ("chunk", ctypes.c_int32),
        ("soft_cap", ctypes.c_double),
        ("softmax_scale", ctypes.c_double),
        ("query_heads", ctypes.c_int32),
        ("kv_heads", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("absent", ctypes.c_int32),
        ("sink_count", ctypes.c_int32),
        ("sinks", ctypes.POINTER(ctypes.c_double)),
    ]


class Experts(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_int32),
        ("per_token", ctypes.c_int32),
        ("intermediate", ctypes.c_int32),
    ]


class Options(ctypes.Structure):
    _fields_ = [
        ("query_window", ctypes.c_int32),
        ("chunk_tokens", ctypes.c_int32),
        ("queue_bytes", ctypes.c_int64),
    ]


class Rows(ctypes.Structure):
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


class GpuStats(ctypes.Structure):
    _fields_ = [
        ("rows", ctypes.c_int64),
        ("dropped", ctypes.c_int64),
        ("zero_stamps", ctypes.c_int64),
        ("unmatched", ctypes.c_int64),
    ]


class Library:
    """The shared library; a status that is not 0 becomes a CaptureError."""

    def __init__(self):
        handle, text = ctypes.c_void_p, ctypes.c_char_p
        self.path = self._find()
        self._library = ctypes.CDLL(self.path)
        version = self._library.stallcast_abi_version()
        if version != ABI_VERSION:
            raise CaptureError(
                f"the library speaks interface version {version}, this package {ABI_VERSION}",
                self.path,
                "take both from the same version of Stallcast",
            )
        self._library.stallcast_last_error.restype = text
        self._library.stallcast_recorder_free.argtypes = [handle]
        self._library.stallcast_recorder_free.restype = None
        self._library.stallcast_gpu_recorder_free.argtypes = [handle]
        self._library.stallcast_gpu_recorder_free.restype = None
        arguments = {
            "stallcast_recorder_open": [
                text,
                ctypes.POINTER(TraceInfo),
                ctypes.POINTER(Options),
                ctypes.POINTER(handle),
            ],
            "stallcast_recorder_write": [handle, ctypes.POINTER(Rows)],
            "stallcast_recorder_begin_decode": [handle, ctypes.c_int64],
            "stallcast_recorder_set_attention": [
                handle,
                ctypes.c_int32,
                ctypes.POINTER(Attention),
            ],
            "stallcast_recorder_set_experts": [handle, ctypes.POINTER(Experts)],
            "stallcast_recorder_set_expert_use": [
                handle,
                ctypes.c_int32,
                ctypes.c_int32,
                ctypes.POINTER(ctypes.c_int64),
                ctypes.POINTER(ctypes.c_int64),
            ],
            "stallcast_recorder_set_parameter": [handle, text, text],
            "stallcast_recorder_close": [handle],
            "stallcast_trace_read": [text, ctypes.POINTER(Rows), handle, ctypes.c_int64],
            "stallcast_gpu_recorder_open": [text, text, ctypes.POINTER(handle)],
            "stallcast_gpu_recorder_push": [handle, ctypes.c_int32, ctypes.c_int32],
            "stallcast_gpu_recorder_pop": [handle],
            "stallcast_gpu_recorder_close": [handle, ctypes.POINTER(GpuStats)],
        }
        for name, types in arguments.items():
            getattr(self._library, name).argtypes = types

    @staticmethod
    def _find():
        chosen = os.environ.get("STALLCAST_CAPTURE_LIBRARY")
        package = pathlib.Path(__file__).resolve().parent
        folders = [package, package.parents[2] / "build" / "lib" / "capture"]
        places = [chosen] if chosen else [folder / LIBRARY_NAME for folder in folders]
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


def encoded(text):
    """As the C interface takes texts."""
    return str(text).encode("utf-8", "replace")


def read(path, kind, layer):
    """Reads a recorded tensor back: (tensor [heads, tokens, dim], its first token)."""
    library = Library()
    rows = Rows(kind=kind, layer=layer)
    name = os.fsencode(path)
    library.trace_read(name, ctypes.byref(rows), None, 0)
    dtype = next(torch_type for torch_type, code in DTYPES.items() if code == rows.dtype)
    tensor = torch.empty(rows.heads, rows.tokens, rows.head_dim, dtype=dtype)
    size = tensor.numel() * tensor.element_size()
    library.trace_read(name, ctypes.byref(rows), tensor.data_ptr(), size)
    return tensor, rows.first_token
