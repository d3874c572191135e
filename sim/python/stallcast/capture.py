"""The package that records models (capture/python), under this name too:

    from stallcast import capture
    with capture.record(model, "run.kvt"): ...
"""

try:
    import stallcast_capture as _capture
except ModuleNotFoundError as error:
    if error.name != "stallcast_capture":
        raise
    raise ModuleNotFoundError(
        "stallcast.capture: the package stallcast-capture is missing; install capture/python of "
        "Stallcast's sources with pip",
        name="stallcast_capture",
    ) from None

__all__ = list(_capture.__all__)


def __getattr__(name):
    return getattr(_capture, name)


def __dir__():
    return sorted({*globals(), *__all__, *dir(_capture)})
