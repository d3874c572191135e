#!/usr/bin/env python3
"""How near the recordings of traces/measured are to their predictions, op by op.

    residuals.py
        predicts the run of each recording, as it is while recorded, and writes
        traces/measured/residuals.csv: of each kind of op on the GPU the median of
        |predicted / measured - 1|. Tests hold later predictions to them. STALLCAST_BIN names the
        folder of stallcast (default: build/bin).
"""

import csv
import io
import json
import tempfile
from pathlib import Path

from repredict import PROJECT, stallcast

MEASURED = PROJECT / "traces" / "measured"
OF_METHOD = "param."


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
    compared = stallcast("compare", predicted, recording, "--format", "csv")
    for row in csv.DictReader(io.StringIO(compared)):
        if "(" not in row["group"]:
            yield recording.stem, row["group"], row["median_relative"]


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
        writer.writerow(("recording", "op", "median_relative"))
        writer.writerows((name, op, f"{float(of):.4f}") for name, op, of in rows)


if __name__ == "__main__":
    main()
