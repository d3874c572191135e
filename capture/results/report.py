#!/usr/bin/env python3
"""The page of measured runs, made from the CSV files of this folder.

    report.py FOLDER NAME    prints the sums of FOLDER/NAME-*.csv, which measure.sh writes
    report.py --write        writes README.md anew
    report.py --check        exit 1 where README.md is not what the CSV files say
    report.py --adopt FOLDER NAME
                             makes those runs the runs of this folder, at 5 significant digits
"""

import csv
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# What the page shows of a run, in the files' order.
KEPT = {
    "runs": ("background_h2d_gb_per_s", "method", "params", "model", "context", "batch", "graph",
             "steps", "predicted_ms", "measured_ms", "launch_us", "link_gb_per_s",
             "units_compared", "units_equal_percent"),
    "prompts": ("method", "params", "model", "context", "batch", "predicted_prefill_ms",
                "measured_prefill_ms"),
    "recordings": ("method", "params", "model", "context", "batch", "steps", "measured_ms",
                   "measured_traced_ms", "predicted_exposed_recall_ms",
                   "measured_exposed_recall_ms"),
}
# Sections of measure.sh that have a CSV file of their own: the columns of runs.
KEPT |= {"moe": KEPT["runs"], "hisparse-cpu": KEPT["runs"]}
DISTINCT = 1.03  # measured times whose order counts differ by so much


def read(path):
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(path, titles, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, titles, restval="", extrasaction="ignore",
                                lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def error(row, column="_ms"):
    return 100 * (float(row["predicted" + column]) / float(row["measured" + column]) - 1)


def errors(rows, column="_ms"):
    return [error(row, column) for row in rows]


def table(titles, rows):
    cells = [titles, ["---"] * len(titles)] + [[str(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)


def sums(name, values):
    sizes = [abs(value) for value in values]
    within = lambda most: f"{sum(size <= most for size in sizes)}"
    return [name, len(sizes), f"{statistics.median(sizes):.1f}", within(3), within(8),
            f"{max(values, key=abs):+.1f}"]


def order(rows):
    """Pairs of one setting in the measured order, of those that differ by 3 % or more."""
    setting = lambda row: tuple(row[key] for key in ("model", "context", "batch", "graph"))
    right = pairs = 0
    for slow in rows:
        for fast in rows:
            of = lambda row, which: float(row[which + "_ms"])
            if setting(slow) != setting(fast) or row_rate(slow) != row_rate(fast):
                continue
            if of(slow, "measured") < DISTINCT * of(fast, "measured"):
                continue
            pairs += 1
            right += of(slow, "predicted") > of(fast, "predicted")
    return right, pairs


def row_rate(row):
    return row.get("background_h2d_gb_per_s") or ""


def by_method(rows):
    """Median and worst error of each method and context."""
    contexts = sorted({int(row["context"]) for row in rows})
    methods = sorted({row["method"] for row in rows})
    lines = []
    for method in methods:
        line = [method]
        for context in contexts:
            values = [error(row) for row in rows
                      if row["method"] == method and int(row["context"]) == context]
            line.append(f"{statistics.median(map(abs, values)):.1f} ({max(values, key=abs):+.1f})"
                        f" of {len(values)}" if values else "")
        lines.append(line)
    return table(["method"] + [f"{context:,} tokens" for context in contexts], lines)


def histogram(values):
    """Runs by error, a line for each two percent."""
    lines = []
    low = -10
    while low < 10:
        count = sum(low <= value < low + 2 for value in values)
        lines.append(f"{low:+4d} to {low + 2:+3d} %  {'#' * count} {count or ''}".rstrip())
        low += 2
    return "```\n" + "\n".join(lines) + "\n```"


def beside(rows, *titles):
    """Each run, predicted beside measured."""
    return table([*titles, "predicted ms", "measured ms", "error"],
                 [[*(row[title] for title in titles), f"{float(row['predicted_ms']):.2f}",
                   f"{float(row['measured_ms']):.2f}", f"{error(row):+.1f} %"] for row in rows])


def spread_of(rows):
    """The median error of some runs and the worst."""
    values = errors(rows)
    if not values:
        return "no runs"
    return (f"{len(values)} runs, {statistics.median(map(abs, values)):.1f} % at the median, "
            f"{max(values, key=abs):+.1f} % at worst")


def as_run(rows):
    """Steps of PyTorch's programs, and of each what the GPU and the link were busy for."""
    lines = []
    for row in rows:
        busy = [f"{float(row[f'predicted_{of}_ms']):.1f}, {float(row[f'measured_{of}_ms']):.1f}"
                for of in ("kernels", "to_gpu", "to_host")]
        lines.append([row["program"], f"{int(row['context']):,}", row["batch"],
                      f"{float(row['predicted_ms']):.1f}", f"{float(row['measured_ms']):.1f}",
                      f"{float(row['least_ms']):.0f} to {float(row['most_ms']):.0f}",
                      f"{error(row):+.0f} %", *busy])
    return table(["program", "tokens", "batch", "predicted ms", "measured ms", "its steps", "error",
                  "kernels", "to GPU", "to host"], lines)


def describe(row):
    parts = [row["method"], row["params"], f"{int(row['context']):,} tokens",
             f"batch {row['batch']}"]
    if row.get("graph") == "true":
        parts.append("CUDA graph")
    if row_rate(row):
        parts.append(f"beside {row_rate(row)} GB/s of other copies")
    return ", ".join(part for part in parts if part)


def misses(rows):
    causes = read(HERE / "causes.csv")
    worst = sorted(rows, key=lambda row: -abs(error(row)))[:10]
    lines = []
    for row in worst:
        cause = next((each["cause"] for each in causes
                      if each["method"] in ("", row["method"]) and each["params"] in row["params"]),
                     "not known")
        lines.append([describe(row), f"{float(row['predicted_ms']):.2f}",
                      f"{float(row['measured_ms']):.2f}", f"{error(row):+.1f}", cause])
    return table(["run", "predicted ms", "measured ms", "error %", "cause"], lines)


def recorded_within(rows):
    of = lambda row, which: float(row[which + "_exposed_recall_ms"])
    return sum(abs(of(row, "predicted") - of(row, "measured")) <= max(0.05, 0.1 * of(row, "measured"))
               for row in rows)


def folder_runs(folder, prefix=""):
    return {kind: read(Path(folder) / f"{prefix}{kind}.csv") for kind in KEPT}


def summary(found):
    runs, prompts = found["runs"], found["prompts"]
    lines = []
    if runs:
        lines.append(sums("decode steps", errors(runs)))
    beside = [row for row in runs if row_rate(row)]
    if beside:
        lines.append(sums("of these, beside other copies on the link", errors(beside)))
    if prompts:
        lines.append(sums("prompts (time to the first decode step)", errors(prompts, "_prefill_ms")))
    return lines


SUM_TITLES = ["runs of", "runs", "median %", "within 3 %", "within 8 %", "worst %"]


def page():
    found = folder_runs(HERE)
    runs = found["runs"]
    lines = summary(found)
    for name, file in (("runs that no rule was made for", "unseen-runs.csv"),
                       ("real keys at 32,000 tokens, another calibration", "unseen-real-runs.csv"),
                       ("the shipped traces, calibrated anew", "samples-runs.csv"),
                       ("the shipped traces, an H100 calibrated anew", "samples-h100-runs.csv"),
                       ("an H100, calibrated before its runs", "h100-runs.csv")):
        rows = read(HERE / file)
        if rows:
            lines.append(sums(name, errors(rows)))
    right, pairs = order(runs)
    units = sum(int(float(row["units_compared"] or 0)) for row in runs)
    unequal = [row for row in runs if float(row["units_equal_percent"] or 100) < 100]
    launches = sorted(float(row["launch_us"]) for row in runs if row["launch_us"])
    text = (HERE / "README.in.md").read_text(encoding="utf-8")
    values = {
        "SUMS": table(SUM_TITLES, lines),
        "ORDER": f"{right:,} of {pairs:,}",
        "UNITS": f"{units / 1e6:,.0f} million",
        "UNEQUAL": ("all are equal" if not unequal else
                    "all but these are equal: " +
                    "; ".join(f"{describe(row)} ({row['units_equal_percent']} % equal)"
                              for row in unequal[:5])),
        "METHODS": by_method(runs),
        "HISTOGRAM": histogram(errors(runs)),
        "MISSES": misses(runs),
        "RECORDED": f"{recorded_within(found['recordings'])} of {len(found['recordings'])}",
        "LAUNCHES": f"{launches[0]:.1f} to {launches[-1]:.1f} us, "
                    f"{statistics.median(launches):.1f} us at the median",
        "MOE": beside(read(HERE / "moe.csv"), "model", "method", "context", "batch"),
        "MOE_SUMS": spread_of(read(HERE / "moe.csv")),
        "HOST_RUNS": beside(read(HERE / "hisparse-cpu.csv"), "method", "params", "context",
                            "batch"),
        "HOST_SUMS": spread_of(read(HERE / "hisparse-cpu.csv")),
        "AS_RUN": as_run(read(HERE / "transformers-steps.csv")),
        "AS_RUN_SUMS": spread_of(read(HERE / "transformers-steps.csv")),
        "MACHINES": table(["host", "launch us", "runs", "median %", "within 8 %", "worst %"],
                          [[row[title] for title in ("host", "launch_us", "runs", "median_percent",
                                                     "within_8_percent", "worst_percent")]
                           for row in read(HERE / "other-machines.csv")]),
    }
    for name, value in values.items():
        text = text.replace("{{" + name + "}}", value)
    return ("<!-- Made by report.py from README.in.md and the CSV files here: report.py --write -->\n"
            + text)


def rounded(value):
    try:
        number = float(value)
    except (TypeError, ValueError):
        return value or ""
    return f"{number:.5g}" if number != int(number) else str(int(number))


def adopt(folder, name):
    for kind, titles in KEPT.items():
        rows = read(Path(folder) / f"{name}-{kind}.csv")
        if rows:
            write(HERE / f"{kind}.csv", titles,
                  [{title: rounded(row.get(title)) for title in titles} for row in rows])


def main(arguments):
    if len(arguments) == 3 and arguments[0] == "--adopt":
        adopt(*arguments[1:])
        return 0
    if len(arguments) == 2:
        folder, name = arguments
        found = folder_runs(folder, f"{name}-")
        if not any(found.values()):
            print(f"report.py: no {folder}/{name}-*.csv: write some with measure.sh",
                  file=sys.stderr)
            return 1
        print(table(SUM_TITLES, summary(found)))
        if found["runs"]:
            right, pairs = order(found["runs"])
            print(f"\nOrder: {right} of {pairs} pairs.\n\n{by_method(found['runs'])}")
            print(f"\n{misses(found['runs'])}")
        if found["recordings"]:
            print(f"\nExposed recall: {recorded_within(found['recordings'])} of "
                  f"{len(found['recordings'])} recordings within 10 % or 50 us.")
        return 0
    if arguments not in (["--write"], ["--check"]):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    path = HERE / "README.md"
    text = page()
    if arguments == ["--write"]:
        path.write_text(text, encoding="utf-8")
        return 0
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        print("report.py: README.md is not what the CSV files say: report.py --write",
              file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (KeyError, ValueError) as fault:
        sys.exit(f"report.py: a CSV file is not as measure.sh writes it ({fault!r}): "
                 "measure it anew")
