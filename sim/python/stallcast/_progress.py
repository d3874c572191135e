"""How far a call is: a bar in notebooks, or on a terminal."""

import sys
import time
from typing import Callable, Optional, Union

Progress = Union[bool, Callable[[str, float], None]]


def listener(progress: Progress) -> Optional[Callable[[str, float], None]]:
    """What the module tells progress; None: the bar of a terminal."""
    if callable(progress):
        return progress
    if not progress:
        return lambda what, share: None
    return _NotebookBar() if _in_notebook() else None


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


class _NotebookBar:
    """Only for work that lasts a second; goes when the call ends."""

    def __init__(self):
        self._start = self._last = time.monotonic()
        self._display = None

    def __call__(self, what, share):
        now = time.monotonic()
        if now - self._start < 1 or now - self._last < 0.2:
            return
        self._last = now
        from html import escape

        from IPython.display import HTML, display

        bar = HTML(f'<progress value="{share:.3f}" max="1"></progress> {escape(what)}')
        if self._display is None:
            self._display = display(bar, display_id=True)
        else:
            self._display.update(bar)

    def __del__(self):
        if self._display is not None:
            from IPython.display import HTML

            self._display.update(HTML(""))
