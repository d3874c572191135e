"""What goes wrong, in one line."""

import importlib
import sys


class CaptureError(RuntimeError):
    """What went wrong, where, and what to do about it, in one line."""

    def __init__(self, what, where="", remedy=""):
        line = (f"{where}: " if where else "") + what + (f"; {remedy}" if remedy else "")
        super().__init__(" ".join(line.split()))


def load(module):
    """A module of this package; without the libraries that it needs, a CaptureError."""
    try:
        return importlib.import_module(f"{__package__}.{module}")
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "transformers"):
            raise
        raise CaptureError(
            f"this Python has no {error.name}",
            sys.executable,
            f"install it (pip install {error.name}) or use the Python that runs your model",
        ) from None


def run_command(module, arguments=None):
    """Runs a module's run(arguments); a CaptureError is one line and exit status 1."""
    try:
        load(module).run(sys.argv[1:] if arguments is None else arguments)
    except CaptureError as error:
        sys.exit(f"stallcast_capture: {error}")
