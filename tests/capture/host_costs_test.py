"""The section that host_costs writes: it parses, names what a profile needs, and leaves the other
sections of a file as they are."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    tomllib = None

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "capture" / "python"
sys.path.insert(0, str(PACKAGE))
from stallcast_capture import host_costs

PROFILE = """name = 'mine'
[pytorch]
launch = { source = 'old', value = '1 us' }

    [pytorch.gather]
    threads = [ 1.0 ]
    time_us = [ 1.0 ]

[pytorchish]
kept = 1
[link]
h2d = { source = 'old', value = '50 GB/s' }
"""


def cost(name, *rounds):
    made = host_costs.Cost(name, "", None)
    made.rounds = list(rounds)
    return made


@unittest.skipIf(tomllib is None, "this Python reads no TOML")
class Section(unittest.TestCase):
    def test_replaces_its_own_section_alone(self):
        costs = [
            cost("view", 1, 2, 3),
            cost("copy_pinned@16384", 8, 9, 10),
            cost("copy_pinned@131072", 10, 10, 10),
            cost("gather_row@1", 1, 1, 1),
            cost("gather_row@2", 0.5, 0.5, 0.5),
        ]
        section = host_costs.section(costs, "it's measured")
        once = host_costs.merged(PROFILE, section)
        self.assertEqual(host_costs.merged(once, section), once)
        read = tomllib.loads(once)
        self.assertEqual(read["name"], "mine")
        self.assertEqual(read["pytorchish"], {"kept": 1})
        self.assertEqual(read["link"]["h2d"]["value"], "50 GB/s")
        pytorch = read["pytorch"]
        self.assertEqual(pytorch["view"]["value"], "2.000 us")
        self.assertNotIn("launch", pytorch)
        self.assertEqual(pytorch["copy_pinned"]["piece_bytes"], [16384.0, 131072.0])
        self.assertEqual(pytorch["copy_pinned"]["time_us"], [9.0, 10.0])
        self.assertEqual(pytorch["gather_row"]["threads"], [1.0, 2.0])
        self.assertEqual(pytorch["gather_row"]["time_us"], [1.0, 0.5])

    def test_operators_have_turns(self):
        calls = []
        quick = host_costs.Cost("quick", "", lambda: calls.append("quick"))
        other = host_costs.Cost("other", "", lambda: calls.append("other"), waits=True)
        slow = host_costs.Cost("slow", "", lambda: time.sleep(1.5 * host_costs.SLOW))
        host_costs.measure([quick, other, slow], lambda: calls.append("settled"))
        for cost in (quick, other, slow):
            self.assertEqual(len(cost.rounds), host_costs.ROUNDS)
        self.assertGreaterEqual(slow.median, 1.5e6 * host_costs.SLOW)
        turns = host_costs.ROUNDS * host_costs.TURNS
        self.assertEqual([calls.count(name) for name in ("quick", "other")], [turns + 2] * 2)
        before = [calls[i - 1] for i, name in enumerate(calls) if name == "other"]
        self.assertEqual(set(before[1:]), {"settled"})

    def run_command(self, *arguments):
        return subprocess.run(
            [sys.executable, "-m", "stallcast_capture.host_costs", *arguments],
            env={**os.environ, "PYTHONPATH": str(PACKAGE)},
            capture_output=True,
            text=True,
            check=False,
        )

    @unittest.skipUnless(importlib.util.find_spec("torch"), "this Python has no torch")
    def test_measures_without_a_gpu(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "mine.toml")
            path.write_text("name = 'mine'\n", encoding="utf-8")
            done = self.run_command("--no-gpu", "--out", str(path))
            self.assertEqual(done.returncode, 0, done.stderr)
            read = tomllib.loads(path.read_text(encoding="utf-8"))
        self.assertEqual(read["name"], "mine")
        for name in ["view", "slice", "module_call", "cpu_operator"]:
            self.assertGreater(float(read["pytorch"][name]["value"].split()[0]), 0)
        times = read["pytorch"]["gather_row"]["time_us"]
        self.assertTrue(all(time > 0 for time in times))

    @unittest.skipIf(importlib.util.find_spec("torch"), "this Python has torch")
    def test_says_that_torch_is_missing(self):
        done = self.run_command("--out", "/nowhere")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("torch", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
