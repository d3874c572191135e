"""What capture/results shows: its pages against its CSV files, and measure.sh against both."""

import csv
import os
import re
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
contexts = {"8k": 8192, "32k": 32000, "64k": 65536, "128k": 131072, "256k": 262144,
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


PROMPT = ("method", "params", "model", "context", "batch")
RUN = PROMPT + ("graph", "steps")


def runs(rows, of=RUN):
    return Counter(tuple(row[column] for column in of) for row in rows)


def prompts(rows):
    return runs(rows, PROMPT)


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

    def of(self, file):
        return read(self.folder / "out" / f"mine-{file}.csv")

    def test_measures_each_run_that_the_pages_show(self):
        done = self.measure()
        self.assertEqual(done.returncode, 0, done.stderr)
        for file in ("validation", "louiskv-prkv-validation", "shadowkv-validation"):
            self.assertEqual(runs(self.of(file)), runs(read(RESULTS / f"h200-{file}.csv")), file)
        both = self.of("pariskv-wgkv-validation") + self.of("pariskv-wgkv-long")
        shown = read(RESULTS / "h200-pariskv-wgkv-validation.csv")
        self.assertEqual(runs(both), runs(shown))
        # Prompts of the long runs stand beside their steps.
        self.assertEqual(prompts(self.of("pariskv-wgkv-long")),
                         prompts(row for row in shown if row["measured_prefill_ms"]))
        for file in ("prefill-validation", "shadowkv-prefill"):
            self.assertEqual(prompts(self.of(file)), prompts(read(RESULTS / f"h200-{file}.csv")))
        beside = read(RESULTS / "h200-background-validation.csv")
        for rate in ("10", "20"):
            at_rate = [row for row in beside if row["background_h2d_gb_per_s"] == rate]
            self.assertEqual(runs(self.of(f"background-{rate}")), runs(at_rate))

    def test_a_run_that_fails_is_told_and_the_others_are_kept(self):
        done = self.measure("calibrate", "background", FAILS="offload,arkvale")
        self.assertEqual(done.returncode, 1)
        self.assertIn("out of memory", done.stderr)
        self.assertEqual({row["method"] for row in self.of("background-20")}, {"freekv"})
        # What failed is made up for, and nothing measured twice.
        self.assertEqual(self.measure("background").returncode, 0)
        methods = Counter(row["method"] for row in self.of("background-20"))
        self.assertEqual(methods, Counter(freekv=2, offload=1, arkvale=1))

    def test_a_grid_of_which_a_run_fails_is_left_out_until_none_does(self):
        done = self.measure("calibrate", "background", FAILS_IN_GRID="arkvale")
        self.assertEqual(done.returncode, 1)
        self.assertIn("out of memory", done.stderr)
        self.assertIn("left out: run", done.stderr)
        self.assertEqual({row["method"] for row in self.of("background-20")}, {"freekv"})
        self.assertEqual(self.measure("background").returncode, 0)
        methods = Counter(row["method"] for row in self.of("background-20"))
        self.assertEqual(methods, Counter(freekv=2, offload=1, arkvale=1))

    def test_never_puts_runs_below_the_titles_of_others(self):
        self.measure("calibrate")
        path = self.folder / "out" / "mine-background-10.csv"
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
        self.assertRegex(done.stderr, "^measure.sh: .*/stallcast is missing: ./dev build makes it")
        done = self.measure("grid")
        self.assertEqual(done.returncode, 1)
        self.assertIn("run the section calibrate first", done.stderr)
        self.assertEqual(list((self.folder / "out").glob("*.csv")), [])


    def test_predicts_every_kept_run_again(self):
        done = subprocess.run(
            [sys.executable, RESULTS / "repredict.py", "A", "--list"],
            env={**os.environ, "STALLCAST_BIN": str(self.bin),
                 "STALLCAST_SYNTHETIC": str(self.folder)},
            capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        summary, *runs = done.stdout.splitlines()
        self.assertEqual(len(runs), int(re.match(r"A: (\d+) runs", summary).group(1)))
        (self.bin / "stallcast").unlink()
        done = subprocess.run([sys.executable, RESULTS / "repredict.py", "B"],
                              env={**os.environ, "STALLCAST_BIN": str(self.bin)},
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("./dev build makes it", done.stderr)


class Report(Folder):
    def setUp(self):
        super().setUp()
        shutil.copytree(RESULTS, self.folder / "capture" / "results")
        papers = Path("models") / "papers"
        shutil.copytree(SOURCE / papers, self.folder / papers)
        self.results = self.folder / "capture" / "results"

    def report(self, *arguments):
        return subprocess.run([sys.executable, self.results / "report.py", *arguments],
                              capture_output=True, text=True, check=False)

    def measure_anew(self, times_predicted):
        """As if the page's first run had taken so many times what was predicted; how its row then
        begins."""
        path = self.results / "h200-validation.csv"
        rows = read(path)
        predicted = float(rows[0]["predicted_ms"])
        measured = times_predicted * predicted
        error = 100 * (predicted / measured - 1)
        rows[0].update(measured_ms=str(measured), error_percent=str(error))
        write(path, rows)
        what = f"{int(rows[0]['context']):,} | {rows[0]['batch']} | {rows[0]['method']} | "
        return f"| {what}{rows[0]['params']} | {predicted:.2f} | {measured:.2f} | {error:+.1f} |"

    def test_pages_show_what_the_files_have(self):
        done = self.report("--check")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_names_the_row_that_is_no_longer_so(self):
        row = self.measure_anew(2)
        done = self.report("--check")
        self.assertEqual(done.returncode, 1)
        self.assertIn("should have: " + row, done.stderr)

    def test_writes_the_rows_anew_and_nothing_else(self):
        page = self.results / "h200-validation.md"
        before = page.read_text().splitlines()
        row = self.measure_anew(0.98)
        self.report("--write")
        after = page.read_text().splitlines()
        changed = {new: old for old, new in zip(before, after) if old != new}
        self.assertEqual(len(before), len(after))
        # The run's own row, with what other machines had; its method's median or worst too, where
        # they have become others.
        others = next(old for new, old in changed.items() if new.startswith(row)).split("|")[8:]
        self.assertEqual(len(others), 3)
        self.assertIn(row + "|".join(others), changed)
        self.assertLessEqual(len(changed), 2)

    def test_adopts_another_machine_and_keeps_what_was_there(self):
        # The same measured anew, each step a tenth slower.
        machine = read(self.results / "h200-exposed-recall.csv")[0]["machine"]
        measured = self.folder / "out"
        measured.mkdir()
        for path in self.results.glob("h200-*.csv"):
            rows = [row for row in read(path) if row.get("machine") in (None, machine)]
            for row in rows:
                if row.get("error_percent"):
                    row["measured_ms"] = str(1.1 * float(row["measured_ms"]))
            if rows:  # all but the other machines'
                write(measured / path.name.replace("h200", "mine"), rows)
        before = read(self.results / "h200-other-machines.csv")
        shown = read(self.results / "h200-validation.csv")
        done = self.report("--adopt", measured, "mine", "P")
        self.assertEqual(done.returncode, 0, done.stderr)
        after = read(self.results / "h200-other-machines.csv")
        self.assertEqual(after[182:], before)
        self.assertEqual(Counter(row["machine"] for row in after[:182]), {machine: 182})
        self.assertEqual(after[0]["measured_ms"], shown[0]["measured_ms"])
        slower = read(self.results / "h200-validation.csv")
        self.assertEqual(runs(slower), runs(shown))
        self.assertAlmostEqual(float(slower[0]["measured_ms"]), 1.1 * float(shown[0]["measured_ms"]))
        recalls = Counter(row["machine"] for row in read(self.results / "h200-exposed-recall.csv"))
        self.assertEqual(list(recalls)[:2], ["P", machine])
        self.assertEqual(recalls["P"], recalls[machine])
        done = self.report("--write")
        self.assertNotIn("should have", self.report("--check").stderr)

    def test_says_and_keeps_what_the_host_was_like(self):
        for path in self.results.glob("h200-*.csv"):
            rows = read(path)
            for row in rows:
                row["steps_disturbed"] = "0"
                row["host_now_error_percent"] = "-0.5"
            if path.name == "h200-validation.csv":
                rows[3]["steps_disturbed"] = "2"
                rows[5]["host_now_error_percent"] = "-9"
            write(path.with_name(path.name.replace("h200", "mine")), rows)
        done = self.report(self.results, "mine")
        steps = sum(int(row["steps"]) for path in self.results.glob("h200-*validation.csv")
                    for row in read(path) if "prefill" not in path.name)
        self.assertIn(f"Disturbed in each repetition: 2 of {steps:,} steps.", done.stdout)
        self.assertIn("Predicted for the host as it was then: 0.5 % at the median, 181 of 182 within "
                      "3 %, 181 within 8 %, worst 9.0 %.", done.stdout)
        done = self.report("--adopt", self.results, "mine", "P")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(read(self.results / "h200-validation.csv")[3]["steps_disturbed"], "2")

    def test_does_not_adopt_a_part(self):
        shutil.copy(self.results / "h200-validation.csv", self.folder / "mine-validation.csv")
        done = self.report("--adopt", self.folder, "mine", "P")
        self.assertEqual(done.returncode, 1)
        self.assertIn("run measure.sh to its end", done.stderr)
        self.assertIn("lack 100 of the runs here", done.stderr)

    def test_shows_any_machine_and_says_where_there_is_none(self):
        done = self.report(self.results, "h200")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| all decode steps | 182 |", done.stdout)
        self.assertIn("of 208 pairs as measured", done.stdout)
        took = re.search("around the runs (a launch took .* at the median)", done.stdout)[1]
        self.assertIn(took, (self.results / "h200-validation.md").read_text())
        self.assertIn("Disturbed in each repetition: 6 of 4,320 steps", done.stdout)
        done = self.report(self.results, "mine")
        self.assertEqual(done.returncode, 1)
        self.assertIn("write some with measure.sh", done.stderr)

    def test_says_in_a_line_what_is_no_result(self):
        (self.folder / "mine-validation.csv").write_text("method,params\nfull,\n")
        done = self.report(self.folder, "mine")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^report.py: a CSV file is not as measure.sh writes it.*anew\n$")
        page = self.results / "h200-validation.md"
        page.write_text(page.read_text().replace("| link taken GB/s |", "| taken |"))
        done = self.report("--check")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^report.py: h200-validation.md lacks a table titled .*\n$")


if __name__ == "__main__":
    unittest.main()
