"""What a long command is doing, on standard error."""

import sys
import time

INTERVAL = 0.2  # seconds between two pictures on a terminal


class Progress:
    """A stage is a line in a log. On a terminal the line goes on to say how far it is."""

    def __init__(self):
        self._terminal = sys.stderr.isatty()
        self._stage = ""
        self._shown = 0.0

    def __call__(self, stage):
        """Begins a stage."""
        self._stage = stage
        if self._terminal:
            self._draw("")
        else:
            print(f"stallcast_capture: {stage}", file=sys.stderr, flush=True)

    def at(self, done, total):
        """Says that `done` of the stage's `total` tokens are done."""
        if self._terminal and time.monotonic() - self._shown > INTERVAL:
            self._draw(f", {done:,} of {total:,} tokens")

    def end(self):
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _draw(self, text):
        self._shown = time.monotonic()
        print(f"\r\033[Kstallcast_capture: {self._stage}{text}", end="", file=sys.stderr, flush=True)
