#!/usr/bin/env python3
"""Predicts the measured runs of this folder again and says how near the predictions are.

    repredict.py [A] [B] [--machine-a PROFILE] [--machine-b PROFILE] [--list] [--write]

        A: the decode runs of runs.csv to 128K, without other traffic on the link, with the shipped
           profile h200.
        B: unseen-runs.csv, runs that no rule and no profile value was made for, with the profile of
           the machine that ran them, unseen-h200.toml.
        Prints, for each set: the median of |predicted / measured - 1|, the runs within 3 % and 8 %,
        the worst, and how many pairs of runs of one model, context and batch come out in the right
        order, of those whose measured times differ by 3 % or more. --list adds every run by error;
        --write puts the predictions into the CSV files, for report.py.

STALLCAST_BIN names the folder of stallcast (default: build/bin). Synthetic traces are made once, in
STALLCAST_SYNTHETIC (default: build/traces).
"""

import argparse
import csv
import io
import itertools
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RESULTS = Path(__file__).resolve().parent
PROJECT = RESULTS.parents[1]
STALLCAST = Path(os.environ.get("STALLCAST_BIN", PROJECT / "build" / "bin")) / "stallcast"
TRACES = RESULTS / "traces"
SYNTHETIC = Path(os.environ.get("STALLCAST_SYNTHETIC", PROJECT / "build" / "traces"))

# What `stallcast synth` makes for a run, by context; measure.sh makes those of A likewise.
MADE_A = {
    "32768": ("--prompt 32K --steps 256 --layers 2 --segment-length 16 --similarity 0.9"
              " --head-correlation 0.9"),
    "65536": "--prompt 64K --steps 256 --layers 2 --model llama-3.1-8b",
    "131072": "--prompt 128K --steps 32 --layers 2 --model llama-3.1-8b --rotate",
}
MADE_B = {
    "20000": ("--prompt 20000 --steps 64 --layers 2 --model qwen3-8b --similarity 0.93"
              " --segment-length 9 --seed 77"),
    "96000": ("--prompt 96000 --steps 32 --layers 1 --model llama-3.1-8b --similarity 0.9"
              " --segment-length 6 --seed 78 --rotate"),
}
RECORDED = {"8192": "code-8k.kvt", "32000": "code-32k.kvt"}
DISTINCT = 1.03  # measured times whose order counts differ by so much


def stallcast(*arguments):
    program = Path(sys.argv[0]).name
    try:
        done = subprocess.run([STALLCAST, *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise SystemExit(f"{program}: {STALLCAST} is missing: ./dev build makes it") from None
    if done.returncode != 0:
        raise SystemExit(f"{program}: stallcast {' '.join(map(str, arguments))}: "
                         f"{done.stderr.strip()}")
    return done.stdout


def rows(name):
    with open(RESULTS / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def trace(run, made):
    context = run["context"]
    if context in RECORDED:
        return TRACES / RECORDED[context]
    path = SYNTHETIC / f"{'a' if made is MADE_A else 'b'}-{context}.kvt"
    if not path.exists():
        SYNTHETIC.mkdir(parents=True, exist_ok=True)
        stallcast("synth", path, *made[context].split())
    return path


def predict(run, path, machine):
    """The mean step of a run, in ms."""
    arguments = ["predict", path, "--machine", machine, "--no-prefill", "--format", "csv"]
    for option in ("method", "model", "batch", "steps"):
        arguments += [f"--{option}", run[option]]
    for parameter in run["params"].split():
        arguments += ["-p", parameter]
    if run["graph"] == "true":
        arguments.append("--graph")
    # As those runs had them: heads repeated, and the thresholds that were the defaults then.
    if path.parent == TRACES:
        arguments.append("--repeat-heads")
    tau = {"freekv": "0.9", "louiskv": "0.7"}.get(run["method"])
    if tau and "tau=" not in run["params"]:
        arguments += ["-p", f"tau={tau}"]
    return float(next(csv.DictReader(io.StringIO(stallcast(*arguments))))["step_mean_ms"])


def order(runs, measured, predicted):
    """Of how many pairs the order is right, and how many there are."""
    right = pairs = 0
    setting = [(run["model"], run["context"], run["batch"], run["graph"]) for run in runs]
    for i, j in itertools.combinations(range(len(runs)), 2):
        if setting[i] != setting[j]:
            continue
        slow, fast = (i, j) if measured[i] > measured[j] else (j, i)
        if measured[slow] < DISTINCT * measured[fast]:
            continue
        pairs += 1
        right += predicted[slow] > predicted[fast]
    return right, pairs


def judge(name, runs, made, machine, listed):
    """Prints the sums; the predicted ms of each run."""
    # A method's first prediction on a trace replays its policy, and the others use its log.
    paths = [trace(run, made) for run in runs]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        predicted = list(pool.map(lambda i: predict(runs[i], paths[i], machine), range(len(runs))))
    measured = [float(run["measured_ms"]) for run in runs]
    errors = [100 * (now / then - 1) for now, then in zip(predicted, measured)]
    sizes = [abs(error) for error in errors]
    right, pairs = order(runs, measured, predicted)
    print(f"{name}: {len(runs)} runs, median {statistics.median(sizes):.2f} %, "
          f"mean {statistics.mean(sizes):.2f} %, within 3 %: {sum(s <= 3 for s in sizes)}, "
          f"within 8 %: {sum(s <= 8 for s in sizes)}, worst {max(sizes):.1f} %, "
          f"in order: {right} of {pairs} pairs")
    if listed:
        for error, run in sorted(zip(errors, runs), key=lambda pair: -abs(pair[0])):
            print(f"  {error:+6.2f} %  {run['method']} {run['params']} {run['model']} "
                  f"context {run['context']} batch {run['batch']}"
                  f"{' graph' if run['graph'] == 'true' else ''}")
    return predicted


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="A|B")
    parser.add_argument("--machine-a", default="h200", metavar="PROFILE")
    parser.add_argument("--machine-b", default=RESULTS / "unseen-h200.toml", metavar="PROFILE")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    sets = {
        "A": ("runs.csv", MADE_A, options.machine_a, 131072),
        "B": ("unseen-runs.csv", MADE_B, options.machine_b, sys.maxsize),
    }
    for name in options.sets or sets:
        if name not in sets:
            parser.error(f"there is no set '{name}': give A or B")
        file, made, machine, most = sets[name]
        everything = rows(file)
        runs = [run for run in everything
                if int(run["context"]) <= most and not run.get("background_h2d_gb_per_s")]
        predicted = judge(name, runs, made, machine, options.list)
        if options.write:
            for run, milliseconds in zip(runs, predicted):
                run["predicted_ms"] = f"{milliseconds:.5g}"
            with open(RESULTS / file, "w", newline="", encoding="utf-8") as out:
                writer = csv.DictWriter(out, everything[0].keys(), lineterminator="\n")
                writer.writeheader()
                writer.writerows(everything)


if __name__ == "__main__":
    main()
