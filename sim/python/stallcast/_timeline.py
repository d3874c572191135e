"""Timelines: what runs when, a slice a row."""

import os
from typing import TYPE_CHECKING, List, NamedTuple, Optional, Tuple, Union

import numpy

from . import _core
from ._options import arguments, documented, text
from ._progress import Progress, listener

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from typing_extensions import Unpack

    from ._options import ReadOptions


class Lane(NamedTuple):
    """Where rows run: a host thread, a stream, a copy engine."""

    name: str
    kind: str
    compute: bool  #: its idle time is exposed time


class Timeline:
    """Columns of a timeline, as numpy arrays of one length that cannot be written.

    lane and name are places in `lanes` and `names`, role in `stallcast.roles()`. op, step and layer
    are -1 where unknown, graph_node 0 where a row is of no CUDA graph. Times are in picoseconds
    from any origin. Rows are ordered by start within a lane. flows has a row (op, op) for each wait
    of the second op for the first."""

    lane: numpy.ndarray
    op: numpy.ndarray
    step: numpy.ndarray
    layer: numpy.ndarray
    role: numpy.ndarray
    name: numpy.ndarray
    start_ps: numpy.ndarray
    duration_ps: numpy.ndarray
    bytes: numpy.ndarray
    graph_node: numpy.ndarray
    flows: numpy.ndarray

    def __init__(self, data: _core.Timeline) -> None:
        self._data = data
        self.title: str = data.title
        #: "predicted", "measured" or "imported"
        self.origin: str = data.origin
        #: whatever qualifies it: projected, derived, dropped, ...
        self.notes: List[str] = data.notes
        self.names: List[str] = data.names
        self.lanes: List[Lane] = [Lane(*lane) for lane in data.lanes]
        for column in ("lane", "op", "step", "layer", "role", "name", "start_ps", "duration_ps",
                       "bytes", "flows"):
            setattr(self, column, getattr(data, column))
        graph_node = data.graph_node
        self.graph_node = graph_node if len(graph_node) else numpy.zeros(len(self), numpy.int64)

    def __len__(self) -> int:
        return len(self.start_ps)

    def __repr__(self) -> str:
        return f"<stallcast.Timeline {self.title!r}: {len(self)} rows, {len(self.lanes)} lanes>"

    def frame(self) -> "pandas.DataFrame":
        """The rows with names in place of numbers, times in microseconds."""
        import pandas

        def named(codes, names):
            # Two lanes may have one name.
            known = {name: place for place, name in enumerate(dict.fromkeys(names))}
            places = numpy.array([known[name] for name in names], dtype=numpy.int64)
            return pandas.Categorical.from_codes(places[codes], list(known))

        return pandas.DataFrame(
            {
                "lane": named(self.lane, [lane.name for lane in self.lanes]),
                "op": self.op,
                "step": self.step,
                "layer": self.layer,
                "role": named(self.role, _core.roles()),
                "name": named(self.name, self.names),
                "start_us": self.start_ps / 1e6,
                "duration_us": self.duration_ps / 1e6,
                "bytes": self.bytes,
                "graph_node": self.graph_node,
            }
        )

    def write(self, path: "Union[str, os.PathLike[str]]") -> None:
        """Writes a file: .kvt, .pftrace (ui.perfetto.dev), .json or .csv."""
        self._data.write(text(path))

    def plot(self, step: Optional[int] = None, ax: "Optional[Axes]" = None) -> "Axes":
        """Draws the rows of a step, one line a lane; without one, the first that there is."""
        from ._plots import timeline

        return timeline(self, step, ax)


def read(path, options, progress: Progress) -> Tuple[List[Timeline], List[str]]:
    timelines, notes = _core.read_timelines(
        text(path),
        arguments("read_timelines", _core.read_options(), options),
        listener(progress),
    )
    return [Timeline(each) for each in timelines], notes


@documented(_core.read_options())
def read_timelines(
    path: "Union[str, os.PathLike[str]]",
    *,
    progress: Progress = True,
    **options: "Unpack[ReadOptions]",
) -> List[Timeline]:
    """The timelines of a file: .kvt, Perfetto, Chrome or Kineto JSON, Nsight Systems' SQLite.

    What is damaged or lost is a warning."""
    import warnings

    timelines, notes = read(path, options, progress)
    for note in notes:
        warnings.warn(f"{path}: {note}", stacklevel=2)
    return timelines
