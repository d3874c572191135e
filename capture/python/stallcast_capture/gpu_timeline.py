"""Records what the GPU does."""

import contextlib
import ctypes
import os

import torch

from .library import INJECTED_NAME, GpuStats, Library, encoded

class Timeline:
    """Records GPU activity between __enter__ and __exit__; see timeline()."""

    def __init__(self, path, title=""):
        self.path = os.fspath(path)
        self._title = title
        self._recorder = None
        self.stats = GpuStats()
        self._library = Library()
        # NVTX looks here at its first range; the library passes it on to the CUPTI in use.
        injected = os.path.join(os.path.dirname(self._library.path), INJECTED_NAME)
        if os.path.isfile(injected):
            os.environ.setdefault("NVTX_INJECTION64_PATH", injected)

    def __enter__(self):
        recorder = ctypes.c_void_p()
        self._library.gpu_recorder_open(
            os.fsencode(self.path), encoded(self._title), ctypes.byref(recorder)
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
