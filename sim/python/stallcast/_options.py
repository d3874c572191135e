"""Keyword arguments as options of the command: one table, the command's own, says which there are.

The TypedDicts say the same to type checkers."""

import os
from typing import Any, Callable, List, Mapping, Sequence, Tuple, TypedDict, TypeVar, Union

Value = Union[str, int, float, bool, "os.PathLike[str]"]
Names = Union[str, Sequence[str]]
Table = Sequence[Tuple[str, str, str]]  # of options: name, kind of value, help


class ReadOptions(TypedDict, total=False):
    strict: bool
    step_range: str


class Requirements(TypedDict, total=False):
    min_mass: Value
    max_gpu: Value
    max_step: Value


class RecordOptions(Requirements, total=False):
    pareto: bool


class RunOptions(TypedDict, total=False):
    param: Mapping[str, Value]
    budget: Value
    steps: int
    samples: int
    host: str
    graph: bool
    as_run: bool
    no_prefill: bool
    model: Value
    tp: int
    kv_dtype: str
    weight_dtype: str
    queries: Value
    accepted: Value
    prefill_chunk: Value
    routing: Value
    context: Value
    repeat_heads: bool
    batch: int
    set: Mapping[str, Value]
    strict: bool
    no_cache: bool


class PredictOptions(RunOptions, Requirements, total=False):
    machine: str


class SweepOptions(RunOptions, RecordOptions, total=False):
    method: Names
    machine: Names
    again: bool


class ReplayOptions(ReadOptions, total=False):
    change: Names
    set: Mapping[str, Value]
    grid: Mapping[str, Union[Value, Sequence[Value]]]
    machine: str
    top: Union[bool, int]
    timeline: int


class CompareOptions(ReadOptions, total=False):
    by: str
    predicted: int
    measured: int


def text(value: Any) -> str:
    """A value as it is written behind an option."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple, range)):
        return ",".join(text(each) for each in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def arguments(function: str, known: Table, given: Mapping[str, Any]) -> List[str]:
    """`given` as arguments of the command. TypeError for what is not among `known`."""
    result: List[str] = []
    names = {name.replace("-", "_"): name for name, _, _ in known}
    for keyword, value in given.items():
        if keyword not in names:
            raise TypeError(f"{function}() got an unexpected keyword argument {keyword!r}")
        option = "--" + names[keyword]
        if value is None or value is False:
            continue
        if value is True:
            result.append(option)
        elif isinstance(value, Mapping):
            result += [f"{option}={name}={text(each)}" for name, each in value.items()]
        elif isinstance(value, (list, tuple)):
            result += [f"{option}={text(each)}" for each in value]
        else:
            result.append(f"{option}={text(value)}")
    return result


Function = TypeVar("Function", bound=Callable)


def documented(known: Table) -> Callable[[Function], Function]:
    """Adds the options to a function's docstring."""

    def document(function: Function) -> Function:
        lines = [
            f"    {name.replace('-', '_')}{f' ({kind})' if kind else ''}: {help}"
            for name, kind, help in known
        ]
        if function.__doc__:  # not with python -OO
            function.__doc__ += "\n\nOptions, as of the command:\n" + "\n".join(lines)
        return function

    return document
