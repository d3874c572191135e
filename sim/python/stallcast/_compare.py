"""Two timelines compared."""

import json
import os
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

from . import _core
from ._options import arguments, documented, text
from ._predict import Prediction
from ._progress import Progress
from ._timeline import Timeline, read

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from typing_extensions import Unpack

    from ._options import CompareOptions

Side = Union[str, "os.PathLike[str]", Timeline, Prediction]


class Comparison:
    """What `stallcast compare --format json` prints.

    A prediction and a run of its plan are compared op by op: `of_plan` is true, and the tables are
    groups, steps and exposed. Other pairs are compared by kind: the table is kinds."""

    def __init__(self, record: str, notes: List[str]) -> None:
        self.record: Dict[str, Any] = json.loads(record)
        #: what is damaged or lost of the files
        self.notes: List[str] = notes
        self.of_plan: bool = "kinds" not in self.record

    def _table(self, name: str, of_plan: bool = True) -> "pandas.DataFrame":
        import pandas

        if of_plan != self.of_plan:
            how = "op by op" if self.of_plan else "kind by kind"
            raise AttributeError(f"no {name}: the timelines were compared {how}")
        return pandas.DataFrame(self.record[name])

    @property
    def groups(self) -> "pandas.DataFrame":
        """Residuals by kind, role or layer."""
        return self._table("groups")

    @property
    def steps(self) -> "pandas.DataFrame":
        """Predicted and measured time of each step."""
        return self._table("steps")

    @property
    def exposed(self) -> "pandas.DataFrame":
        """Exposed time a step by role."""
        return self._table("exposed")

    @property
    def kinds(self) -> "pandas.DataFrame":
        """Busy and exposed time a step by kind, of two programs."""
        return self._table("kinds", of_plan=False)

    def plot(self, ax: "Optional[Axes]" = None) -> "Axes":
        """Draws time by group, or busy time by kind, of both sides."""
        from ._plots import comparison

        return comparison(self, ax)


@documented(_core.compare_options())
def compare(
    a: Side,
    b: Optional[Side] = None,
    *,
    progress: Progress = True,
    **options: "Unpack[CompareOptions]",
) -> Comparison:
    """Compares two timelines: predictions, recordings, or one each, in either order.

    A side is a file, a Timeline or a Prediction; b may be left out where file a holds both."""
    reading = {name.replace("-", "_") for name, _, _ in _core.read_options()}
    choice = {name: value for name, value in options.items() if name not in reading}
    given = arguments("compare", _core.compare_options(), choice)
    sides, names, notes = [], [], []
    for side in (a, b):
        if side is None:
            continue
        if isinstance(side, Prediction):
            side = side.timeline
        if isinstance(side, Timeline):
            sides.append(side._data)
            names.append(side.title)
            continue
        flags = {name: value for name, value in options.items() if name in reading}
        timelines, of_file = read(side, flags, progress)
        sides += [timeline._data for timeline in timelines]
        names.append(text(side))
        notes += [f"{text(side)}: {note}" for note in of_file]
    return Comparison(_core.compare(sides, " and ".join(names), given), notes)
