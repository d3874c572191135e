import csv

import numpy
import pandas
import pytest

import stallcast

SMALL = {"model": "llama-3.1-8b", "steps": 4, "no_prefill": True}
SMALL_OPTIONS = ["--model", "llama-3.1-8b", "--steps", "4", "--no-prefill"]


def assert_same(frame, rows):
    """`rows` are those of the command's CSV: texts, empty where not known."""
    assert len(frame) == len(rows)
    assert list(frame.columns) == list(rows[0])
    for place, row in enumerate(rows):
        for name, cell in row.items():
            value = frame[name][place]
            if name == "finished":
                continue
            if value is None or value is pandas.NA or value != value:
                assert cell == "", name
            elif isinstance(value, (bool, numpy.bool_)):
                assert cell == ("true" if value else "false"), name
            elif isinstance(value, str):
                assert cell == value, name
            else:
                assert float(cell) == value, name


def test_table_is_the_commands_csv(command, tmp_path):
    frame = stallcast.sweep(
        "sample:8k",
        {"budget": [2048, 4096], "link.h2d": ["1x", "2x"]},
        method=["freekv", "full"],
        min_mass=0.9,
        pareto=True,
        **SMALL,
    )
    out = tmp_path / "results.sqlite"
    text = command.csv(
        "sweep", "sample:8k", "-o", out, "--method", "freekv,full", "-g", "budget=2048,4096",
        "-g", "link.h2d=1x,2x", "--min-mass", "0.9", "--pareto", *SMALL_OPTIONS,
    )  # fmt: skip
    assert len(frame) == 6  # full has no budget
    assert_same(frame, list(csv.DictReader(text.splitlines())))
    assert frame["step_mean_ms"].dtype == numpy.float64
    assert frame["context_tokens"].dtype == numpy.int64
    again = stallcast.read_sweep(out, min_mass=0.9, pareto=True)
    pandas.testing.assert_frame_equal(
        again.drop(columns="finished"), frame.drop(columns="finished")
    )


def test_rows_are_predictions():
    frame = stallcast.sweep("sample:8k", {"budget": [2048]}, method="freekv", **SMALL)
    one = stallcast.predict("sample:8k", "freekv", budget=2048, **SMALL)
    for name, value in one.metrics.items():
        swept = frame[name][0]
        assert swept == value or (value is None and (swept is None or numpy.isnan(swept))), name


def test_failed_points_are_told(tmp_path):
    out = tmp_path / "results.sqlite"
    with pytest.warns(UserWarning, match="1 of 2 points failed"):
        frame = stallcast.sweep("sample:8k", {"budget": [1024, 2048]}, method="freekv", out=out,
                                **SMALL)  # fmt: skip
    assert sorted(frame["status"]) == ["failed", "ok"]
    failed = frame[frame["status"] == "failed"]
    assert failed["message"].iloc[0] and failed["step_mean_ms"].isna().all()


def test_a_sweep_goes_on(tmp_path):
    out = tmp_path / "results.sqlite"
    call = {"method": "full", "out": out, **SMALL}
    first = stallcast.sweep("sample:8k", {"batch": [1, 2]}, **call)
    again = stallcast.sweep("sample:8k", {"batch": [1, 2, 4]}, **call)
    assert len(again) == 3
    kept = again[again["batch"] <= 2].reset_index(drop=True)
    assert list(kept["finished"]) == list(first["finished"])


def test_errors_are_the_commands(command, tmp_path):
    out = tmp_path / "results.sqlite"
    for grid, option in [
        ({"budgit": [1, 2]}, "budgit=1,2"),
        ({"budget": "1:2"}, "budget=1:2"),
        ({"machine": ["h200", "h300"]}, "machine=h200,h300"),
    ]:
        with pytest.raises(stallcast.Error) as caught:
            stallcast.sweep("sample:8k", grid, out=out, **SMALL)
        assert str(caught.value) == command.error("sweep", "sample:8k", "-o", out, "-g", option,
                                                  *SMALL_OPTIONS)  # fmt: skip


def test_nothing_swept_is_an_error(tmp_path):
    with pytest.raises(stallcast.Error, match="none of 1 points") as caught:
        stallcast.sweep("sample:8k", {"budget": [1024]}, method="freekv", **SMALL)
    assert "sqlite" not in str(caught.value)  # no file of the caller's
