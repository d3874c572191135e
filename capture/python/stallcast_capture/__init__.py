"""Records a transformers model's queries, keys and values, after RoPE, into a .kvt file.

    import stallcast_capture
    with stallcast_capture.record(model, "run.kvt", layers=[0, 5], values=[5]):
        model.generate(**inputs, max_new_tokens=256)

    with stallcast_capture.timeline("timeline.kvt") as recorder:
        for step in range(64):
            with recorder.step(step):
                model(...)

The README beside this package tells more. Commands: `python3 -m stallcast_capture --help` and
`python3 -m stallcast_capture.host_costs --help`."""

from .errors import CaptureError, load

# Loaded at first use: the host's costs need no transformers.
_MODULES = {
    "Recorder": "recorder",
    "record": "recorder",
    "Timeline": "gpu_timeline",
    "timeline": "gpu_timeline",
    "read": "library",
    "QUERY": "library",
    "KEY": "library",
    "VALUE": "library",
}
__all__ = ["CaptureError", *_MODULES]


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(load(_MODULES[name]), name)
