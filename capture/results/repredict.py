#!/usr/bin/env python3
"""Measured runs predicted anew: by another calibration of the same machine, or by today's code.

    repredict.py FOLDER NAME PROFILE NEW
        writes FOLDER/NEW-*.csv: the rows of FOLDER/NAME-*.csv, which measure.sh wrote, with what
        `stallcast predict` gives with PROFILE (a name or a file); what was measured stays. Exposed
        recall is predicted where the recording lies in FOLDER/timelines. STALLCAST_BIN names the
        folder of stallcast (default: build/bin), STALLCAST_TRACES that of the traces that ran
        (default: traces/samples; capture/results/traces for this folder's rows). What is of the
        profile that the runs had is left out: notes on the host and link, as launch_us and
        link_gb_per_s say the same, and what was predicted for the host as it was around a run.
"""

import csv
import io
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
STALLCAST = Path(os.environ.get("STALLCAST_BIN", PROJECT / "build" / "bin")) / "stallcast"
TRACES = Path(os.environ.get("STALLCAST_TRACES", PROJECT / "traces" / "samples"))
# The trace of each context, as measure.sh has them: shipped, or made in FOLDER/traces.
SHIPPED = {"8192": "*-8k.kvt", "32000": "*-32k.kvt"}
MADE = {
    "8000": "rotated-8k",
    "32768": "segments-32k",
    "65536": "synth-64k",
    "131072": "rotated-128k",
    "200000": "rotated-200k",
    "262144": "rotated-256k",
    "400000": "rotated-400k",
}
OF_THE_HOST = ("host_now_ms", "host_now_error_percent")
OF_THE_PROFILE = ("a launch takes", "a host gather", "the link carries", "predicted with")


def stallcast(*arguments):
    program = Path(sys.argv[0]).name
    try:
        done = subprocess.run([STALLCAST, *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise SystemExit(f"{program}: {STALLCAST} is missing: ./dev build makes it") from None
    if done.returncode != 0:
        raise SystemExit(f"{program}: stallcast {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return done.stdout


def trace_of(folder, row):
    context = row["context"]
    if context in SHIPPED:
        found = sorted(TRACES.glob(SHIPPED[context]))
        if len(found) != 1:
            raise SystemExit(f"repredict.py: {len(found)} of {TRACES}/{SHIPPED[context]}: one is needed")
        return found[0]
    if context in MADE:
        made = folder / "traces" / f"{MADE[context]}.kvt"
        if not made.exists():
            raise SystemExit(f"repredict.py: {made} is missing: measure.sh's section synth makes it")
        return made
    raise SystemExit(f"repredict.py: a context of {context}: measure.sh has no trace of it")


def prediction(folder, row, profile, rate):
    arguments = ["predict", trace_of(folder, row), "--machine", profile]
    for option in ("method", "model", "batch", "steps"):
        arguments += [f"--{option}", row[option]]
    for parameter in row["params"].split():
        arguments += ["-p", parameter]
    if row["graph"] == "true":
        arguments.append("--graph")
    if TRACES.resolve() == PROJECT / "capture" / "results" / "traces":
        # As those runs had them.
        arguments.append("--repeat-heads")
        tau = {"freekv": "0.9", "louiskv": "0.7"}.get(row["method"])
        if tau and "tau=" not in row["params"]:
            arguments += ["-p", f"tau={tau}"]
    if rate:
        arguments += ["--set", f"background.h2d={rate}GB/s"]
    return arguments


def recording_of(folder, file, row):
    """As `stallcast-gpu run --timelines` calls it."""
    name = f"{row['method']}-{trace_of(folder, row).stem}-b{row['batch']}-{row['model']}"
    name += "".join("-" + of.replace("=", "-") for of in sorted(row["params"].split()))
    small = "small" if file.endswith("small") else ""
    return folder / "timelines" / small / f"{name}.measured.kvt"


def exposed_recall(arguments, recording):
    with tempfile.TemporaryDirectory() as temporary:
        predicted = Path(temporary) / "predicted.kvt"
        stallcast(*arguments, "--no-prefill", "--set", "host.recorded=1", "--timeline", predicted)
        compared = json.loads(
            stallcast("compare", predicted, recording, "--exposed", "--format", "json"))
    return next((role["predicted_ms"] for role in compared if role["exposed"] == "recall"), 0.0)


def error(row, predicted, measured):
    return 100 * (float(row[predicted]) / float(row[measured]) - 1)


def repredict(folder, file, row, profile):
    rate = file.removeprefix("background-") if file.startswith("background-") else ""
    arguments = prediction(folder, row, profile, rate)
    prefill = bool(row.get("measured_prefill_ms"))
    without = [] if prefill else ["--no-prefill"]
    now = next(csv.DictReader(io.StringIO(stallcast(*arguments, *without, "--format", "csv"))))
    row["predicted_ms"], row["predicted_p50_ms"] = now["step_mean_ms"], now["step_p50_ms"]
    row["error_percent"] = error(row, "predicted_ms", "measured_ms")
    if prefill:
        row["predicted_prefill_ms"] = 1e3 * float(now["prefill_s"])
        row["prefill_error_percent"] = error(row, "predicted_prefill_ms", "measured_prefill_ms")
    if row.get("measured_exposed_recall_ms"):
        recording = recording_of(folder, file, row)
        if not recording.exists():
            raise SystemExit(f"repredict.py: {recording} is missing: run measure.sh recordings")
        row["predicted_exposed_recall_ms"] = exposed_recall(arguments, recording)
    for column in OF_THE_HOST:
        row.pop(column, None)
    notes = [note for note in row["note"].split("; ") if not note.startswith(OF_THE_PROFILE)]
    row["note"] = "; ".join(notes)


def main(arguments):
    if len(arguments) != 4 or arguments[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    folder, name, profile, new = Path(arguments[0]), *arguments[1:]
    if new == name:
        print("repredict.py: the new rows need a name of their own", file=sys.stderr)
        return 2
    if not STALLCAST.exists():
        print(f"repredict.py: {STALLCAST} is missing: ./dev build makes it", file=sys.stderr)
        return 1
    paths = sorted(folder.glob(f"{name}-*.csv"))
    if not paths:
        print(f"repredict.py: no {folder}/{name}-*.csv: write some with measure.sh",
              file=sys.stderr)
        return 1
    for path in paths:
        file = path.stem.removeprefix(f"{name}-")
        with open(path, newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        if not rows:
            continue
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda row: repredict(folder, file, row, profile), rows))
        with open(folder / f"{new}-{file}.csv", "w", newline="", encoding="utf-8") as lines:
            writer = csv.DictWriter(lines, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
