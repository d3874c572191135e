"""The package beside the command: STALLCAST_PROGRAM, the build folder's, or one on the PATH."""

import json
import os
import pathlib
import shutil
import subprocess

import matplotlib
import pytest

matplotlib.use("Agg")
ROOT = pathlib.Path(__file__).resolve().parents[3]
CASES = ROOT / "tests" / "traces" / "cases"


class Command:
    def __init__(self):
        built = ROOT / "build" / "bin" / "stallcast"
        found = os.environ.get("STALLCAST_PROGRAM") or shutil.which(str(built))
        self._program = found or shutil.which("stallcast")
        if not self._program:
            pytest.skip("no program stallcast to compare with; set STALLCAST_PROGRAM")

    def _run(self, arguments):
        return subprocess.run(
            [self._program, *map(str, arguments)], capture_output=True, text=True, timeout=120
        )

    def json(self, *arguments):
        done = self._run([*arguments, "--format", "json"])
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def csv(self, *arguments):
        return self._run([*arguments, "--format", "csv"]).stdout

    def error(self, *arguments):
        """The one line of a call that fails."""
        done = self._run(arguments)
        assert done.returncode != 0
        return done.stderr.strip().removeprefix("stallcast: ")


@pytest.fixture(scope="session")
def command():
    return Command()
