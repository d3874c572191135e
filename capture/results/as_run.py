#!/usr/bin/env python3
"""Predicts the measured steps of transformers, each with the operators of its own host.

    as_run.py [--write]             prints predicted beside measured; --write keeps the predictions
    as_run.py adopt STEPS.json... HOSTS
                                    takes what transformers_steps.py --hosts HOSTS measured

transformers-steps.csv has the steps, hosts/ what the host's operators cost between them."""

import csv
import io
import json
import shutil
import statistics
import sys
from pathlib import Path

import repredict
import report

RESULTS = Path(__file__).resolve().parent
STEPS, HOSTS = RESULTS / "transformers-steps.csv", RESULTS / "hosts"
PROGRAMS = {
    "full": ["-m", "full"],
    "offloaded": ["-m", "offload"],
    "offloaded new": ["-m", "offload", "-p", "write_back=new"],
    "static eager": ["-m", "full", "-p", "cache=static"],
    "static graph": ["-m", "full", "-p", "cache=static", "--host", "graph"],
}
# Busy times: the name here, the profiler's kind of record, the roles of a prediction.
BUSY = {
    "kernels": ("kernel", ("projection", "attention", "mlp", "layout", "index", "selection")),
    "to_gpu": ("Memcpy HtoD", ("recall",)),
    "to_host": ("Memcpy DtoH", ("offload",)),
}
TITLES = ["program", "context", "batch", "host", "predicted_ms", "measured_ms", "least_ms", "most_ms",
          *(f"{side}_{name}_ms" for name in BUSY for side in ("predicted", "measured"))]


def adopt(runs, hosts):
    rows = []
    HOSTS.mkdir(exist_ok=True)
    for label, run in runs.items():
        program = label.rsplit(" ", 2)[0]
        if program not in PROGRAMS or "error" in run:
            print(f"as_run.py: left out: {label} {run.get('error', '')}".rstrip(), file=sys.stderr)
            continue
        shutil.copyfile(Path(hosts) / run["host"], HOSTS / run["host"])
        median, least, most = run["step_ms"]
        row = {"program": program, "context": run["context"], "batch": run["batch"],
               "host": run["host"], "measured_ms": median, "least_ms": least, "most_ms": most}
        for name, (kind, _) in BUSY.items():
            row[f"measured_{name}_ms"] = run["a_step"].get(kind, {"ms": 0})["ms"]
        rows.append(row)
    report.write(STEPS, TITLES, rows)


def predict(row):
    text = repredict.stallcast(
        "predict", "sample:8k", "--model", "llama-3.1-8b", "--as-run", *PROGRAMS[row["program"]],
        "--context", row["context"], "--batch", row["batch"], "--steps", "4", "--no-prefill",
        "--machine", HOSTS / row["host"], "--format", "csv")
    found = next(csv.DictReader(io.StringIO(text)))
    row["predicted_ms"] = f"{float(found['step_mean_ms']):.4g}"
    for name, (_, roles) in BUSY.items():
        busy = sum(float(found[f"role_{role}_busy_ms"]) for role in roles)
        row[f"predicted_{name}_ms"] = f"{busy:.4g}"


def main(arguments):
    if arguments[:1] == ["adopt"] and len(arguments) > 2:
        runs = {}
        for path in arguments[1:-1]:
            runs |= json.loads(Path(path).read_text(encoding="utf-8"))["runs"]
        adopt(runs, arguments[-1])
        return
    if arguments not in ([], ["--write"]):
        raise SystemExit(__doc__)
    rows = report.read(STEPS)
    for row in rows:
        predict(row)
        print(f"{row['program']:14} {row['context']:>6} batch {row['batch']}: "
              f"{row['predicted_ms']:>6} ms, measured {row['measured_ms']:>7} "
              f"({row['least_ms']} to {row['most_ms']}), {report.error(row):+.1f} %")
    errors = [abs(error) for error in report.errors(rows)]
    print(f"{len(rows)} programs, {statistics.median(errors):.1f} % at the median, "
          f"within 15 %: {sum(error <= 15 for error in errors)}")
    if arguments:
        report.write(STEPS, TITLES, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
