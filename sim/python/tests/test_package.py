"""What the package says of itself, and what belongs to it."""

import os
import pathlib
import signal
import subprocess
import sys
import typing

import pytest
from conftest import ROOT

import stallcast
from stallcast import _core, _options


@pytest.mark.parametrize(
    "known, types, apart",
    [
        (_core.predict_options, _options.PredictOptions, {"method"}),
        (_core.sweep_options, _options.SweepOptions, {"grid", "out"}),
        (_core.read_sweep_options, _options.RecordOptions, set()),
        (_core.read_options, _options.ReadOptions, set()),
        (_core.replay_options, _options.ReplayOptions, set()),
        (_core.compare_options, _options.CompareOptions, set()),
    ],
)
def test_types_name_the_commands_options(known, types, apart):
    names = {name.replace("-", "_") for name, _, _ in known()} - apart
    assert set(typing.get_type_hints(types, vars(_options))) == names


def test_functions_list_their_options():
    for function in (stallcast.predict, stallcast.sweep, stallcast.replay, stallcast.compare):
        assert "Options, as of the command:" in function.__doc__
    assert "no_prefill" in stallcast.predict.__doc__


def python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_pandas_and_matplotlib_are_not_loaded():
    loaded = python("import stallcast, sys; print({'pandas', 'matplotlib'} & set(sys.modules))")
    assert loaded.stdout.strip() == "set()", loaded.stderr


def test_capture_is_the_other_package():
    path = os.pathsep.join([str(ROOT / "capture/python"), os.environ.get("PYTHONPATH", "")])
    code = (
        "import stallcast.capture, stallcast_capture\n"
        "assert stallcast.capture.CaptureError is stallcast_capture.CaptureError\n"
        "assert set(stallcast_capture.__all__) <= set(dir(stallcast.capture))\n"
    )
    done = python(code, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr


def test_capture_missing_is_told():
    done = python("import stallcast.capture")
    if done.returncode:  # not installed here
        assert "pip" in done.stderr.splitlines()[-1]


def test_an_interrupt_ends_a_prediction():
    code = (
        "import stallcast, sys\n"
        "print('begun', flush=True)\n"
        "stallcast.predict('sample:32k', 'freekv', model='llama-3.1-8b', samples=100000)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "begun\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors


def test_the_notebook_runs():
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    path = ROOT / "sim" / "python" / "example.ipynb"
    assert path.stat().st_size < 100_000
    notebook = nbformat.read(path, as_version=4)
    # This interpreter, whatever kernels are installed.
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT)}},
                            km=_kernel()).execute()  # fmt: skip


def _kernel():
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpec

    manager = AsyncKernelManager()
    manager._kernel_spec = KernelSpec(
        argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        display_name="Python 3",
        language="python",
    )
    return manager


def test_stub_names_the_module():
    stub = pathlib.Path(_core.__file__).parent / "_core.pyi"
    for name in dir(_core):
        if not name.startswith("_"):
            assert name in stub.read_text()
