"""Predictions of a grid as a table."""

import json
import os
import tempfile
import warnings
from typing import TYPE_CHECKING, Mapping, Optional, Sequence, Union

from . import _core
from ._error import Error
from ._options import Value, arguments, documented, text
from ._progress import Progress, listener

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Unpack

    from ._options import RecordOptions, SweepOptions

_NESTED = ("params", "overrides")  # columns "params.budget" of a table


def _frame(file, options) -> "pandas.DataFrame":
    import pandas

    rows = []
    _core.sweep_records(file, options, lambda record: rows.append(json.loads(record)))
    names = {key: dict.fromkeys(name for row in rows for name in row[key]) for key in _NESTED}
    columns = {}
    for key in rows[0] if rows else ():
        if key in _NESTED:
            for name in names[key]:
                columns[f"{key}.{name}"] = [row[key].get(name) for row in rows]
        elif key == "notes":
            columns[key] = ["; ".join(row[key]) for row in rows]
        else:
            columns[key] = [row[key] for row in rows]
    return pandas.DataFrame(columns)


@documented(_core.sweep_options())
def sweep(
    trace: "Union[str, os.PathLike[str]]",
    grid: "Optional[Mapping[str, Union[Value, Sequence[Value]]]]" = None,
    *,
    out: "Optional[Union[str, os.PathLike[str]]]" = None,
    progress: Progress = True,
    **options: "Unpack[SweepOptions]",
) -> "pandas.DataFrame":
    """Predicts every point of a grid over all cores. The table is the command's CSV, a row a point.

    grid: {"budget": [1024, 2048], "context": "8K:32K:x2", "machine": ["h200", "a100-40gb"]}; all
    combinations are points. out: results file (SQLite), which the same call continues where it was
    stopped. Points that cannot be predicted have the status "failed", a message and a warning."""
    import pandas  # before the work

    del pandas
    record_names = {name.replace("-", "_") for name, _, _ in _core.read_sweep_options()}
    form = {name: value for name, value in options.items() if name in record_names}
    with tempfile.TemporaryDirectory(prefix="stallcast-") as folder:
        file = text(out) if out is not None else os.path.join(folder, "results.sqlite")
        axes = [f"{name}={text(values)}" for name, values in (grid or {}).items()]
        given = arguments("sweep", _core.sweep_options(), {**options, "grid": axes, "out": file})
        try:
            points, failed, problems = _core.sweep(text(trace), given, listener(progress))
        except Error as error:
            if out is not None or error.where != file:
                raise
            # The file is gone when the caller reads of it.
            remedy = "with out=FILE, read_sweep(FILE) has the reason of each point"
            raise Error(f"{error.problem}; {remedy}", error.problem, "", remedy) from None
        if failed:
            reasons = "; ".join(f"{count} x {problem}" for problem, count in problems)
            warnings.warn(f"{failed} of {points} points failed: {reasons}", stacklevel=2)
        return _frame(file, arguments("sweep", _core.read_sweep_options(), form))


@documented(_core.read_sweep_options())
def read_sweep(
    file: "Union[str, os.PathLike[str]]", **options: "Unpack[RecordOptions]"
) -> "pandas.DataFrame":
    """The points of an earlier sweep's results file."""
    return _frame(text(file), arguments("read_sweep", _core.read_sweep_options(), options))
