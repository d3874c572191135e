"""A prediction of one method on one machine."""

import functools
import json
import os
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

from . import _core
from ._options import arguments, documented, text
from ._progress import Progress, listener
from ._timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from typing_extensions import Unpack

    from ._options import PredictOptions

_FIELDS = [name for name, _ in _core.fields()]


class Prediction:
    """What `stallcast predict --format json` prints of a prediction, and its timeline.

    Metrics are attributes too: `prediction.step_mean_ms`; `stallcast.fields()` tells what each is.
    `print(prediction)` is the command's report."""

    def __init__(self, trace: str, given: List[str], progress: Progress) -> None:
        self._trace, self._arguments, self._progress = trace, given, progress
        record, self._report = _core.predict(trace, given, listener(progress))
        #: everything, flat: what was asked for, metrics, notes
        self.record: Dict[str, Any] = json.loads(record)
        #: None: not known, or does not apply
        self.metrics: Dict[str, Any] = {name: self.record[name] for name in _FIELDS}
        self.method: str = self.record["method"]
        self.machine: str = self.record["machine"]
        self.model: str = self.record["model"]
        #: the method's parameters, all
        self.params: Dict[str, Any] = self.record["params"]
        #: whatever qualifies the figures: projected, derived, extrapolated, overridden
        self.notes: List[str] = self.record["notes"]

    def __getattr__(self, name: str) -> Any:
        if name in _FIELDS:
            return self.metrics[name]
        raise AttributeError(f"a Prediction has no {name!r}")

    def __dir__(self) -> List[str]:
        return [*super().__dir__(), *_FIELDS]

    def __str__(self) -> str:
        return self._report

    def __repr__(self) -> str:
        return (
            f"<stallcast.Prediction {self.method} on {self.machine}, {self.model}: "
            f"{self.metrics['step_mean_ms']:.3f} ms a step>"
        )

    @property
    def by_role(self) -> Dict[str, Dict[str, Any]]:
        """For each role of an op: busy_ms, exposed_ms, overlap, bytes, critical_ms; a step."""
        result = {}
        for role in _core.roles():
            prefix = f"role_{role}_"
            result[role] = {
                name[len(prefix) :]: value
                for name, value in self.metrics.items()
                if name.startswith(prefix)
            }
        return result

    @functools.cached_property
    def timeline(self) -> Timeline:
        """What ran when; predicted again at first use, as it is large."""
        return Timeline(
            _core.predicted_timeline(
                self._trace, self._arguments, self.record["trace_hash"], listener(self._progress)
            )
        )

    def plot(self, ax: "Optional[Axes]" = None) -> "Axes":
        """Draws busy and exposed time a step by role."""
        from ._plots import roles

        return roles(self, ax)


@documented(_core.predict_options())
def predict(
    trace: "Union[str, os.PathLike[str]]",
    method: str,
    *,
    progress: Progress = True,
    **options: "Unpack[PredictOptions]",
) -> Prediction:
    """Predicts decode steps: replays a trace through a method and times the result.

    trace: a .kvt file, or a shipped one: "sample:8k". progress: whether to show how far it is, or a
    function of what is done and its share."""
    given = arguments("predict", _core.predict_options(), {"method": method, **options})
    return Prediction(text(trace), given, progress)
