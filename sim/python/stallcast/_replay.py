"""A recording run again, with the machine or the program changed."""

import json
import os
from typing import TYPE_CHECKING, Any, Dict, List, Union

from . import _core
from ._options import arguments, documented, text
from ._progress import Progress, listener
from ._timeline import Timeline

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Unpack

    from ._options import ReplayOptions


class Replay:
    """What `stallcast replay --format json` prints, and the timeline of the last stage."""

    def __init__(self, record: str, timeline: _core.Timeline) -> None:
        #: recorded_step_ms, replay_error, stages, top, notes, ...
        self.record: Dict[str, Any] = json.loads(record)
        self.timeline = Timeline(timeline)
        #: what was inferred or assumed, and what cannot be replayed
        self.notes: List[str] = self.record["notes"]

    @property
    def stages(self) -> "pandas.DataFrame":
        """A row for the recording as it was, then one with each further change."""
        import pandas

        return pandas.json_normalize(self.record["stages"])

    @property
    def top(self) -> "pandas.DataFrame":
        """Ops with the largest exposed time, where `top` was asked for."""
        import pandas

        return pandas.DataFrame(self.record["top"])

    @property
    def grid(self) -> "pandas.DataFrame":
        """A row for each point of `grid`, where it was given."""
        import pandas

        return pandas.DataFrame(self.record["grid"])

    def __repr__(self) -> str:
        stages = self.record["stages"]
        return (
            f"<stallcast.Replay of {self.record['recording']!r}: {len(stages) - 1} changes, "
            f"{stages[0]['step_ms']:.3f} to {stages[-1]['step_ms']:.3f} ms a step>"
        )


@documented(_core.replay_options())
def replay(
    recording: "Union[str, os.PathLike[str]]",
    *,
    progress: Progress = True,
    **options: "Unpack[ReplayOptions]",
) -> Replay:
    """Replays a recording of any program, unchanged or with changes, which add up.

        stallcast.replay("kineto.json.gz", set={"link.h2d": "2x"}, change="graph all", top=5)
        stallcast.replay("kineto.json.gz", grid={"link.h2d": [1, 2, 4]}).grid

    `stallcast replay --help` has the changes."""
    given = arguments("replay", _core.replay_options(), options)
    return Replay(*_core.replay(text(recording), given, listener(progress)))
