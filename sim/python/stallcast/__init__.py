"""Predicts how long LLM decode steps take when the KV cache lives off the GPU, and why.

    import stallcast
    prediction = stallcast.predict("sample:8k", "freekv", model="llama-3.1-8b")
    print(prediction)
    table = stallcast.sweep("sample:8k", {"budget": "1K:4K:x2"}, model="llama-3.1-8b")

Keyword arguments are the options of the command `stallcast`: `--no-prefill` is `no_prefill=True`,
`-p tau=0.9` is `param={"tau": 0.9}`, `--set link.h2d=2x` is `set={"link.h2d": "2x"}`. Both give the
same numbers, and errors are `stallcast.Error` with the command's text."""

import os as _os

from . import _core

_core.use_package(_os.path.dirname(_os.path.abspath(__file__)))

from ._compare import Comparison, compare
from ._core import machines, methods, models, roles, samples
from ._core import version as __version__
from ._error import Error
from ._predict import Prediction, predict
from ._replay import Replay, replay
from ._sweep import read_sweep, sweep
from ._timeline import Lane, Timeline, read_timelines

__all__ = [
    "Comparison",
    "Error",
    "Lane",
    "Prediction",
    "Replay",
    "Timeline",
    "compare",
    "fields",
    "machines",
    "methods",
    "models",
    "predict",
    "read_sweep",
    "read_timelines",
    "replay",
    "roles",
    "samples",
    "sweep",
]


def fields() -> "dict[str, str]":
    """The metrics of a prediction, by name, and what each is."""
    return dict(_core.fields())
