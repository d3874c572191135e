import json

import numpy
import pytest

import stallcast

SMALL = {"model": "llama-3.1-8b", "steps": 4, "no_prefill": True}
SMALL_OPTIONS = ["--model", "llama-3.1-8b", "--steps", "4", "--no-prefill"]


@pytest.fixture(scope="module")
def prediction():
    return stallcast.predict("sample:8k", "freekv", **SMALL)


@pytest.mark.parametrize(
    "method, given, options",
    [
        ("freekv", {}, []),
        (
            "freekv",
            {
                "param": {"tau": 0.8},
                "budget": "4K",
                "set": {"link.h2d": "2x"},
                "context": "32K",
                "batch": 2,
                "samples": 3,
            },
            "-p tau=0.8 --budget 4K --set link.h2d=2x --context 32K --batch 2 --samples 3".split(),
        ),
        (
            "full",
            {"machine": "a100-40gb", "graph": True, "max_gpu": "30GB"},
            "--machine a100-40gb --graph --max-gpu 30GB".split(),
        ),
    ],
)
def test_predicts_as_the_command(command, method, given, options):
    predicted = stallcast.predict("sample:8k", method, **SMALL, **given)
    record = command.json("predict", "sample:8k", "--method", method, *SMALL_OPTIONS, *options)
    assert predicted.record == record["predictions"][0]
    assert predicted.method == method


def test_metrics_are_the_table_of_fields(prediction):
    assert list(prediction.metrics) == list(stallcast.fields())
    assert all(help for help in stallcast.fields().values())
    assert prediction.step_mean_ms == prediction.metrics["step_mean_ms"]
    with pytest.raises(AttributeError):
        prediction.no_such_metric


def test_roles_add_up(prediction):
    roles = prediction.by_role
    assert list(roles) == stallcast.roles()
    exposed = sum(role["exposed_ms"] for role in roles.values())
    assert exposed <= prediction.exposed_ms * (1 + 1e-9)
    critical = sum(role["critical_ms"] for role in roles.values())
    assert 0 < critical <= prediction.step_mean_ms * (1 + 1e-9)
    assert roles["recall"]["bytes"] == prediction.recall_bytes
    assert max(roles, key=lambda name: roles[name]["exposed_ms"]) == (
        prediction.record["most_exposed_role"]
    )


def test_report_and_name(prediction):
    assert "freekv" in repr(prediction)
    assert len(str(prediction).splitlines()) > 5


def test_timeline_columns(prediction):
    timeline = prediction.timeline
    types = {
        "lane": "uint16",
        "op": "int64",
        "step": "int32",
        "layer": "int16",
        "role": "uint8",
        "name": "uint32",
        "start_ps": "int64",
        "duration_ps": "int64",
        "bytes": "int64",
        "graph_node": "int64",
    }
    for column, dtype in types.items():
        values = getattr(timeline, column)
        assert values.dtype == dtype and values.shape == (len(timeline),)
    assert len(timeline) > 1000 and timeline.origin == "predicted"
    assert timeline.lane.max() < len(timeline.lanes)
    assert timeline.name.max() < len(timeline.names)
    assert timeline.role.max() < len(stallcast.roles())
    assert set(timeline.step[timeline.step >= 0]) == set(range(SMALL["steps"]))
    assert (timeline.duration_ps >= 0).all()
    for lane in range(len(timeline.lanes)):
        assert (numpy.diff(timeline.start_ps[timeline.lane == lane]) >= 0).all()
    assert timeline.flows.shape[1] == 2
    assert numpy.isin(timeline.flows, timeline.op).all()
    with pytest.raises(ValueError):
        timeline.start_ps[0] = 0


def test_timeline_is_of_the_prediction(prediction):
    timeline = prediction.timeline
    lanes = [i for i, lane in enumerate(timeline.lanes) if lane.compute]
    moves = [stallcast.roles().index(role) for role in ("recall", "offload", "sync")]
    computes = numpy.isin(timeline.lane, lanes) & ~numpy.isin(timeline.role, moves)
    busy = timeline.duration_ps[computes].sum() / 1e9 / SMALL["steps"]
    assert busy == pytest.approx(prediction.compute_busy_ms, rel=1e-9)


def test_columns_outlive_the_timeline():
    start = stallcast.predict("sample:8k", "full", **SMALL).timeline.start_ps
    assert (start >= 0).all() and start.max() > 0


def test_frame(prediction):
    timeline = prediction.timeline
    frame = timeline.frame()
    assert len(frame) == len(timeline)
    assert frame["lane"][0] == timeline.lanes[timeline.lane[0]].name
    assert list(frame["name"].astype(str)) == [timeline.names[i] for i in timeline.name]
    assert frame["role"].value_counts()["recall"] == (
        timeline.role == stallcast.roles().index("recall")
    ).sum()


def test_timeline_file(prediction, command, tmp_path):
    written = tmp_path / "python.kvt"
    prediction.timeline.write(written)
    of_command = tmp_path / "command.kvt"
    command.json("predict", "sample:8k", "--method", "freekv", *SMALL_OPTIONS,
                 "--timeline", of_command)  # fmt: skip
    assert written.read_bytes() == of_command.read_bytes()
    (back,) = stallcast.read_timelines(written)
    assert (back.start_ps == prediction.timeline.start_ps).all()
    assert back.lanes == prediction.timeline.lanes
    with pytest.raises(stallcast.Error, match="format"):
        prediction.timeline.write(tmp_path / "picture.png")


def test_progress_is_told():
    told = []
    stallcast.predict(
        "sample:8k", "quest", **SMALL, no_cache=True, progress=lambda *news: told.append(news)
    )
    assert told
    assert all(isinstance(what, str) and 0 <= share <= 1 for what, share in told)


def test_listener_can_stop():
    class Enough(Exception):
        pass

    def stop(what, share):
        raise Enough(what)

    with pytest.raises(Enough):
        stallcast.predict("sample:8k", "quest", **SMALL, no_cache=True, progress=stop)


@pytest.mark.parametrize(
    "method, given, options",
    [
        ("freekw", {}, []),
        ("freekv", {"model": "llama-9"}, ["--model", "llama-9"]),
        ("freekv", {"machine": "h2000"}, ["--machine", "h2000"]),
        ("freekv", {"set": {"link.h2d": "fast"}}, ["--set", "link.h2d=fast"]),
        ("freekv", {"param": {"tua": 1}}, ["-p", "tua=1"]),
        ("freekv", {"param": {"tau": 7}}, ["-p", "tau=7"]),
        ("freekv", {"context": "32Q"}, ["--context", "32Q"]),
        ("freekv", {"batch": 0}, ["--batch", "0"]),
        ("freekv", {"steps": "many"}, ["--steps", "many"]),
        ("freekv", {"model": ""}, ["--model="]),
        ("freekv", {"host": "pascal"}, ["--host", "pascal"]),
    ],
)
def test_errors_are_the_commands(command, method, given, options):
    with pytest.raises(stallcast.Error) as caught:
        stallcast.predict("sample:8k", method, **{**SMALL, **given})
    rest = [] if "--model" in " ".join(options) else ["--model", "llama-3.1-8b"]
    arguments = ["predict", "sample:8k", "--method", method, "--no-prefill", *rest, *options]
    assert str(caught.value) == command.error(*arguments)
    assert caught.value.usage
    assert caught.value.problem in str(caught.value)
    assert caught.value.remedy in str(caught.value)


def test_errors_of_files(command, tmp_path):
    missing = tmp_path / "none.kvt"
    with pytest.raises(stallcast.Error) as caught:
        stallcast.predict(missing, "freekv", **SMALL)
    assert str(caught.value) == command.error("predict", missing, "--method", "freekv",
                                              *SMALL_OPTIONS)  # fmt: skip
    assert not caught.value.usage
    with pytest.raises(stallcast.Error) as caught:
        stallcast.predict("sample:9k", "freekv", **SMALL)
    assert str(caught.value) == command.error("predict", "sample:9k")
    with pytest.raises(stallcast.Error, match="a recording"):
        stallcast.predict("run.json", "freekv", **SMALL)


def test_one_method_on_one_machine():
    for given in ({"method": "all"}, {"method": "full", "machine": "h200,a100-40gb"}):
        with pytest.raises(stallcast.Error, match="takes one"):
            stallcast.predict("sample:8k", **given, **SMALL)
    with pytest.raises(TypeError, match="btach"):
        stallcast.predict("sample:8k", "full", btach=4)


def test_a_changed_trace_has_no_timeline(tmp_path, command):
    trace = tmp_path / "small.kvt"
    command._run(["trim", "sample:8k", "-o", trace, "--steps", "4"])
    predicted = stallcast.predict(trace, "full", **{**SMALL, "steps": 2})
    command._run(["trim", "sample:8k", "-o", trace, "--steps", "3"])
    with pytest.raises(stallcast.Error, match="changed"):
        predicted.timeline


def test_lists(command):
    rows = command.json("info", "--machines")
    assert stallcast.machines() == [row["machine"] for row in rows]
    assert stallcast.methods() == [row["method"] for row in command.json("info", "--methods")]
    assert stallcast.models() == [row["model"] for row in command.json("info", "--models")]
    assert "sample:8k" in stallcast.samples()


def test_record_is_json(prediction):
    assert json.loads(json.dumps(prediction.record)) == prediction.record


def test_plots(prediction):
    assert prediction.plot().get_xlabel() == "ms a step"
    axes = prediction.timeline.plot(step=1)
    assert axes.get_xlabel() == "ms"
    with pytest.raises(ValueError, match="0 to 3"):
        prediction.timeline.plot(step=4)
