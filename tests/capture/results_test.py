"""What capture/results shows: its pages against its CSV files, and measure.sh against both."""

import csv
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
RESULTS = SOURCE / "capture" / "results"

# Stands for stallcast and stallcast-gpu: a row for each run that it is asked for, and no time.
STAND_IN = '''#!/usr/bin/env python3
import argparse, itertools, os, sys
if os.path.basename(sys.argv[0]) == "stallcast":
    if sys.argv[1] == "predict":
        # As many ms a step as it has arguments.
        print("step_mean_ms,step_p50_ms,prefill_s", f"{len(sys.argv)},7,0.002", sep="\\n")
    else:
        open(sys.argv[2], "w").write("a trace")
    sys.exit()
parser = argparse.ArgumentParser()
parser.add_argument("command")
if sys.argv[1] == "calibrate":
    parser.add_argument("--name")
    parser.add_argument("--out")
    open(parser.parse_args().out, "w").write("a profile")
    sys.exit()
parser.add_argument("trace")
for name in ("--method", "--model", "--machine", "--set", "--timelines",
             "--budget", "--batch", "--steps", "--repeat", "--format"):
    parser.add_argument(name)
parser.add_argument("-p", action="append", default=[])
parser.add_argument("-g", action="append", default=[])
for name in ("--graph", "--prefill", "--no-check"):
    parser.add_argument(name, action="store_true")
asked = parser.parse_args()
if os.environ.get("FAILS") == asked.method:
    sys.exit("stallcast-gpu: out of memory")
contexts = {"8k": 8192, "32k": 32000, "generation": 112, "64k": 65536, "128k": 131072, "256k": 262144,
            "200k": 200000, "400k": 400000}
made = {"segments-32k": 32768, "rotated-8k": 8000}
stem = os.path.basename(asked.trace)[:-4]
context = made.get(stem) or contexts[stem.rsplit("-", 1)[1]]
print("method,params,model,context,batch,graph,steps" + ",measured_prefill_ms" * asked.prefill +
      ",predicted_ms,measured_ms,note")
axes = {name: values.split(",") for name, values in (axis.split("=") for axis in asked.g)}
batches = axes.pop("batch", [asked.batch or "1"])
if asked.budget:
    axes["budget"] = [asked.budget]
points = list(itertools.product(*([f"{name}={value}" for value in values]
                                  for name, values in axes.items())))
for batch, method, point in itertools.product(batches, asked.method.split(","), points):
    # Of the methods that are asked for with a budget, full attention has none.
    given = asked.p + [value for value in point if method != "full"]
    # Of a grid's runs one may fail, as where it does not fit.
    fails = os.environ.get("FAILS_IN_GRID") == method
    print(method, " ".join(sorted(given)), asked.model, context, batch,
          str(asked.graph).lower(), asked.steps, *["1"] * asked.prefill,
          *(["", "", "out of memory"] if fails else ["5", "5", ""]), sep=",")
'''


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)


class Measure(Folder):
    def setUp(self):
        super().setUp()
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for name in ("stallcast", "stallcast-gpu"):
            (self.bin / name).write_text(STAND_IN)
            (self.bin / name).chmod(stat.S_IRWXU)

    def measure(self, *sections, **environment):
        return subprocess.run(
            [RESULTS / "measure.sh", self.folder / "out", "mine", *sections],
            env={**os.environ, "STALLCAST_BIN": str(self.bin), **environment},
            capture_output=True, text=True, check=False)

    def runs(self):
        return read(self.folder / "out" / "mine-runs.csv")

    def test_measures_each_method_of_the_page(self):
        done = self.measure("calibrate", "grid", "switches", "louiskv-prkv", "pariskv-wgkv",
                            "shadowkv", "qwen", "background", "prefill", "recordings")
        self.assertEqual(done.returncode, 0, done.stderr)
        methods = {row["method"] for row in read(RESULTS / "runs.csv")}
        self.assertEqual(methods - {row["method"] for row in self.runs()}, set())
        self.assertTrue(read(self.folder / "out" / "mine-prompts.csv"))
        self.assertTrue(read(self.folder / "out" / "mine-recordings.csv"))

    def test_a_run_that_fails_is_told_and_made_up_for(self):
        done = self.measure("calibrate", "background", FAILS="offload,arkvale")
        self.assertEqual(done.returncode, 1)
        self.assertIn("out of memory", done.stderr)
        self.assertEqual({row["method"] for row in self.runs()}, {"freekv"})
        self.assertEqual(self.measure("background").returncode, 0)
        methods = Counter(row["method"] for row in self.runs())
        self.assertEqual(methods, Counter(freekv=4, offload=2, arkvale=2))
        rates = Counter(row["background_h2d_gb_per_s"] for row in self.runs())
        self.assertEqual(rates, Counter({"10": 4, "20": 4}))

    def test_never_puts_runs_below_the_titles_of_others(self):
        self.measure("calibrate")
        path = self.folder / "out" / "mine-runs.csv"
        path.write_text("method,milliseconds\n")
        done = self.measure("background")
        self.assertEqual(done.returncode, 1)
        self.assertIn("has other columns", done.stderr)
        self.assertEqual(path.read_text(), "method,milliseconds\n")

    def test_refuses_unknown_sections_and_a_missing_profile_before_it_measures(self):
        done = self.measure("calibrate", "nothing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no section 'nothing'", done.stderr)
        done = self.measure("calibrate", STALLCAST_BIN=str(self.folder))
        self.assertEqual(done.returncode, 1)
        done = self.measure("grid")
        self.assertEqual(done.returncode, 1)
        self.assertIn("run the section calibrate first", done.stderr)
        self.assertEqual(list((self.folder / "out").glob("*.csv")), [])


class Report(Folder):
    def setUp(self):
        super().setUp()
        self.results = self.folder / "results"
        shutil.copytree(RESULTS, self.results, ignore=shutil.ignore_patterns("traces"))

    def report(self, *arguments):
        return subprocess.run([sys.executable, self.results / "report.py", *arguments],
                              capture_output=True, text=True, check=False)

    def test_the_page_is_what_the_files_say(self):
        done = self.report("--check")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_changed_run_changes_the_page(self):
        rows = read(self.results / "runs.csv")
        rows[0]["measured_ms"] = str(2 * float(rows[0]["predicted_ms"]))
        write(self.results / "runs.csv", rows)
        self.assertEqual(self.report("--check").returncode, 1)
        self.assertEqual(self.report("--write").returncode, 0)
        self.assertEqual(self.report("--check").returncode, 0)
        self.assertIn("-50.0", (self.results / "README.md").read_text())

    def test_adopts_what_was_measured(self):
        rows = read(self.results / "runs.csv")
        for row in rows:
            row["measured_ms"] = row["predicted_ms"]
        write(self.folder / "mine-runs.csv", rows)
        self.assertEqual(self.report("--adopt", self.folder, "mine").returncode, 0)
        for row in read(self.results / "runs.csv"):
            self.assertEqual(row["measured_ms"], row["predicted_ms"])

    def test_says_in_a_line_what_is_no_result(self):
        (self.folder / "mine-runs.csv").write_text("method,params\nfull,\n")
        done = self.report(self.folder, "mine")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^report.py: a CSV file is not as measure.sh writes it.*anew\n$")
        done = self.report(self.folder, "absent")
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    unittest.main()
