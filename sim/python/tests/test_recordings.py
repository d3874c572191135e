import pytest
from conftest import CASES, ROOT

import stallcast

MEASURED = ROOT / "traces" / "measured"
IMPORTED = ROOT / "tests" / "traces" / "corpus_import" / "kineto.json"
SMALL = {"model": "llama-3.1-8b", "steps": 4, "no_prefill": True}


@pytest.mark.parametrize(
    "given, options",
    [
        ({}, []),
        (
            {"set": {"link.h2d": "2x"}, "change": ["scale kind=gemm 0.5", "unwait all"], "top": 3},
            ["--set", "link.h2d=2x", "--change", "scale kind=gemm 0.5", "--change", "unwait all",
             "--top=3"],
        ),
        ({"machine": "a100-40gb", "top": True}, ["--machine", "a100-40gb", "--top"]),
    ],
)  # fmt: skip
def test_replays_as_the_command(command, given, options):
    recording = MEASURED / "arkvale.kvt"
    replayed = stallcast.replay(recording, **given)
    assert replayed.record == command.json("replay", recording, *options)
    assert len(replayed.stages) == len(replayed.record["stages"])
    assert len(replayed.top) == len(replayed.record["top"])
    assert replayed.timeline.title.startswith("replay of ")


def test_a_grid_has_a_row_for_each_point(command):
    recording = MEASURED / "arkvale.kvt"
    replayed = stallcast.replay(recording, grid={"link.h2d": [1, 2, 4]})
    assert replayed.record == command.json("replay", recording, "--grid=link.h2d=1,2,4")
    assert list(replayed.grid["link.h2d"]) == ["1", "2", "4"]
    assert replayed.grid["step_ms"].is_monotonic_decreasing


def test_unchanged_replay_is_the_recording():
    recording = MEASURED / "full.kvt"
    (recorded,) = stallcast.read_timelines(recording)
    replayed = stallcast.replay(recording)
    assert len(replayed.timeline) == len(recorded)
    assert replayed.record["replay_error"] == pytest.approx(0, abs=1e-3)


def test_files_of_other_programs(command):
    with pytest.warns(UserWarning, match="left out"):
        (timeline,) = stallcast.read_timelines(IMPORTED)
    assert stallcast.replay(IMPORTED, top=2).record == command.json("replay", IMPORTED, "--top=2")
    assert timeline.origin == "imported" and timeline.title == IMPORTED.name
    assert timeline.start_ps.min() == 0


@pytest.mark.filterwarnings("ignore")
def test_whatever_a_file_holds_is_read_or_an_error():
    read = 0
    for path in CASES.iterdir():
        try:
            for timeline in stallcast.read_timelines(path):
                assert len(timeline.frame()) == len(timeline)
                read += 1
        except stallcast.Error as error:
            assert path.name in str(error)
    assert read > 5


def test_compares_op_by_op_as_the_command(command, tmp_path):
    predicted = stallcast.predict("sample:8k", "full", **SMALL)
    file = tmp_path / "predicted.kvt"
    predicted.timeline.write(file)
    measured = MEASURED / "full.kvt"
    compared = stallcast.compare(predicted, measured, by="role")
    assert compared.of_plan
    assert compared.record == command.json("compare", file, measured, "--by", "role")
    assert compared.record == stallcast.compare(measured, predicted.timeline, by="role").record
    assert compared.groups["ops"].sum() == compared.record["matched_ops"]
    assert len(compared.steps) == 4
    assert compared.exposed["exposed"].iloc[-1] == "all"
    assert compared.plot().get_xlabel() == "ms in all steps"
    with pytest.raises(AttributeError):
        compared.kinds


def test_compares_programs_as_the_command(command):
    a, b = MEASURED / "quest.kvt", MEASURED / "prkv.kvt"
    compared = stallcast.compare(a, b)
    assert not compared.of_plan
    assert compared.record == command.json("compare", a, b)
    assert {"a_busy_ms", "b_busy_ms"} <= set(compared.kinds.columns)
    compared.plot()


def test_errors_are_the_commands(command, tmp_path):
    one, zipped, none = MEASURED / "quest.kvt", CASES / "trace.zip", tmp_path / "no.kvt"
    replay, compare = stallcast.replay, stallcast.compare
    for function, files, given, options in [
        (replay, [one], {"change": "forget all"}, ["--change", "forget all"]),
        (replay, [one], {"change": "remove kind=x"}, ["--change", "remove kind=x"]),
        (replay, [none], {}, []),
        (replay, [one], {"timeline": 2}, ["--timeline", "2"]),
        (replay, [one], {"top": 1000}, ["--top=1000"]),
        (compare, [one], {}, []),
        (compare, [one, one], {"by": "colour"}, ["--by", "colour"]),
        (compare, [one, one], {"predicted": 7}, ["--predicted", "7"]),
        (compare, [zipped, one], {}, []),
    ]:
        with pytest.raises(stallcast.Error) as caught:
            function(*files, **given)
        assert str(caught.value) == command.error(function.__name__, *files, *options)
