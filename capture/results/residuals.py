#!/usr/bin/env python3
"""How near the recordings of traces/measured are to their predictions, op by op.

    residuals.py
        predicts the run of each recording, as it is while recorded, and writes
        traces/measured/residuals.csv: of each kind of op on the GPU the median of
        |predicted / measured - 1|, and (predicted / measured - 1) of the exposed recall a step.
        Tests hold later predictions to them. STALLCAST_BIN names the folder of stallcast
        (default: build/bin).
"""

import csv
import io
import json
import tempfile
from pathlib import Path

from repredict import PROJECT, stallcast

MEASURED = PROJECT / "traces" / "measured"
OF_METHOD = "param."


def compared(*arguments):
    text = stallcast("compare", *arguments, "--format", "csv")
    return list(csv.DictReader(io.StringIO(text)))


def residuals(recording, predicted):
    run = json.loads(stallcast("info", recording, "--format", "json"))["parameters"]
    of_method = [
        f"-p{name.removeprefix(OF_METHOD)}={run[name]}" for name in run if name.startswith(OF_METHOD)
    ]
    stallcast(
        "predict", PROJECT / run["trace"], "--machine", run["machine"], "--method", run["method"],
        *of_method, "--model", run["model"], "--batch", run["batch"], "--steps", run["steps"],
        "--no-prefill", "--set", "host.recorded=1", "--timeline", predicted,
    )
    for row in compared(predicted, recording):
        if "(" not in row["group"]:
            yield recording.stem, row["group"], row["median_relative"]
    for row in compared(predicted, recording, "--exposed"):
        if row["exposed"] == "recall":
            yield recording.stem, "exposed recall", row["relative"]


def main():
    with tempfile.TemporaryDirectory() as folder:
        predicted = Path(folder) / "predicted.kvt"
        rows = [
            row
            for recording in sorted(MEASURED.glob("*.kvt"))
            for row in residuals(recording, predicted)
        ]
    with (MEASURED / "residuals.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("recording", "what", "relative"))
        writer.writerows((name, what, f"{float(of):.4f}") for name, what, of in rows)


if __name__ == "__main__":
    main()
