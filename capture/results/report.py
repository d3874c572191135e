#!/usr/bin/env python3
"""Tables of predicted and measured runs, from what measure.sh writes.

    report.py FOLDER NAME    prints the tables and sums of FOLDER/NAME-*.csv
    report.py --write        brings the tables of this folder's pages up to date with its CSV files
    report.py --check        exit 1 where a table of a page is not what the CSV files say
    report.py --adopt FOLDER NAME LETTER
                             makes those the runs of this folder, of a machine called LETTER; what
                             it had goes to the other machines' (the pages' text stays as it is)
"""

import csv
import re
import statistics
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
# Other machines whose errors stand in the last columns.
OTHERS = ("BT", "BR")
# What the runs of a context that no sample has were replayed on, where it is not plain.
CONTEXT_NAMES = {"32768": "32,768 segments"}
RUN_FILES = (
    "validation",
    "louiskv-prkv-validation",
    "pariskv-wgkv-validation",
    "shadowkv-validation",
)
PROMPT_FILES = ("prefill-validation", "shadowkv-prefill")


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_if_there(path):
    return read(path) if path.exists() else []


def key(row):
    """What tells runs apart."""
    rate = row.get("background_h2d_gb_per_s") or ""
    graph = row.get("graph", "false")
    return rate, row["method"], row["params"], row["model"], row["context"], row["batch"], graph


def of_machines(names):
    errors = {name: {} for name in names}
    for row in read(HERE / "h200-other-machines.csv"):
        if row["machine"] in errors:
            errors[row["machine"]][key(row)] = float(row["error_percent"])
    return errors


def signed(percent):
    return f"{percent:+.1f}"


def lines(titles, rows):
    return ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)] + [
        "| " + " | ".join(row) + " |" for row in rows
    ]


def table(rows, others):
    """Step times; with the link's other traffic in front where there is any."""
    titles = ["context", "batch", "method", "parameters", "predicted ms", "measured ms", "error %"]
    titles += [f"on {name} %" for name in others]
    beside = any(row.get("background_h2d_gb_per_s") for row in rows)
    cells = []
    for row in rows:
        graph = " (CUDA graph)" if row["graph"] == "true" else ""
        context = CONTEXT_NAMES.get(row["context"]) or f"{int(row['context']):,}"
        cell = [context, row["batch"], row["method"] + graph, row["params"]]
        cell += [f"{float(row[of + '_ms']):,.2f}" for of in ("predicted", "measured")]
        cell.append(signed(float(row["error_percent"])))
        for errors in others.values():
            cell.append(signed(errors[key(row)]) if key(row) in errors else "")
        cells.append([row["background_h2d_gb_per_s"]] + cell if beside else cell)
    return lines((["link taken GB/s"] if beside else []) + titles, cells)


def prompt_table(rows):
    cells = []
    for row in rows:
        cell = [f"{int(row['context']):,}", row["batch"], row["method"]]
        cell += [f"{float(row[of + '_prefill_ms']):,.1f}" for of in ("predicted", "measured")]
        cells.append(cell + [signed(float(row["prefill_error_percent"]))])
    return lines(["context", "batch", "method", "predicted ms", "measured ms", "error %"], cells)


def method_table(rows):
    """The first table of the first page: a line a method."""
    by_method = {}
    for row in rows:
        by_method.setdefault(row["method"], []).append(float(row["error_percent"]))
    cells = []
    for method, errors in by_method.items():
        middle = statistics.median(abs(error) for error in errors)
        cells.append([method, str(len(errors)), f"{middle:.1f}", signed(max(errors, key=abs))])
    return lines(["method", "runs", "median %", "worst %"], cells)


def parts(rows):
    """The first page's runs: the grid, FreeKV's pieces and graphs, the second model."""
    grid, pieces, second = [], [], []
    for row in rows:
        alone = row["method"] == "freekv" and "sink=" not in row["params"]
        if row["model"] != rows[0]["model"]:
            second.append(row)
        elif row["graph"] == "true" or alone:
            pieces.append(row)
        else:
            grid.append(row)
    return grid, pieces, second


class Results:
    """All runs of a machine: FOLDER/NAME-*.csv."""

    def __init__(self, folder, name):
        folder = Path(folder)
        of = lambda file: read_if_there(folder / f"{name}-{file}.csv")
        self.runs = {file: of(file) for file in RUN_FILES}
        # Measured in a section of its own.
        self.runs[RUN_FILES[2]] += of("pariskv-wgkv-long")
        self.prompts_by_file = {file: of(file) for file in PROMPT_FILES}
        self.prompts = [row for rows in self.prompts_by_file.values() for row in rows]
        self.prompts += [row for row in self.runs[RUN_FILES[2]] if row.get("measured_prefill_ms")]
        self.prompts.sort(key=lambda row: int(row["context"]))
        self.beside = of("background-validation")
        for path in sorted(folder.glob(f"{name}-background-[0-9]*.csv")):
            rate = path.stem.rsplit("-", 1)[1]
            self.beside += [row | {"background_h2d_gb_per_s": rate} for row in read(path)]
        # Of several machines in a file the first.
        recorded = of("exposed-recall") or of("recordings")
        self.recorded = [
            row for row in recorded if row.get("machine") == recorded[0].get("machine")
        ]

    def all(self):
        return [row for rows in self.runs.values() for row in rows] + self.beside


def errors_of(rows, column="error_percent"):
    return [abs(float(row[column])) for row in rows]


def total(rows, column="error_percent"):
    """Runs, median and worst error in percent, and how many are within 3 and 8."""
    errors = errors_of(rows, column)
    return {
        "runs": len(errors),
        "median": f"{statistics.median(errors):.1f}",
        "worst": f"{max(errors):.1f}",
        "within3": sum(error <= 3 for error in errors),
        "within8": sum(error <= 8 for error in errors),
    }


def order(rows):
    """Pairs of runs of one context and batch, those in the measured order, and by how many percent
    the others lie apart at most."""
    pairs = right = 0
    apart = 0.0
    for i, one in enumerate(rows):
        for other in rows[:i]:
            if (one["context"], one["batch"]) != (other["context"], other["batch"]):
                continue
            pairs += 1
            of = lambda which: float(one[which]) - float(other[which])
            if of("predicted_ms") * of("measured_ms") > 0:
                right += 1
            else:
                both = (float(one["measured_ms"]), float(other["measured_ms"]))
                apart = max(apart, 100 * (max(both) / min(both) - 1))
    return pairs, right, apart


def exposed_recalls(results):
    """How many recordings there are, and in how many the exposed recall is predicted within 10 % or
    50 us."""
    within = 0
    for row in results.recorded:
        predicted, measured = (
            float(row[of + "_exposed_recall_ms"]) for of in ("predicted", "measured")
        )
        within += abs(predicted - measured) <= max(0.05, 0.1 * measured)
    return len(results.recorded), within


def published_experiment(results):
    """WG-KV's: (what, context, ms of the full cache, of WG-KV, their ratio measured, predicted,
    published) of a step and of a prompt."""
    with open(PROJECT / "models" / "papers" / "wgkv.toml", "rb") as file:
        published = {row["id"]: row["published"] for row in tomllib.load(file)["row"]}
    for what, id_, of in (("decode step", "decode", "_ms"), ("prefill", "prefill", "_prefill_ms")):
        for context in (200_000, 400_000):
            full, gated = (
                {which: float(row[which + of]) for which in ("measured", "predicted")}
                for method in ("full", "wgkv")
                for row in results.runs[RUN_FILES[2]]
                if (row["method"], row["context"], row["batch"]) == (method, str(context), "1")
            )
            ratios = [full[which] / gated[which] for which in ("measured", "predicted")]
            ratios.append(published[f"wgkv-{id_}:{context // 1000}K"])
            yield what, context, full["measured"], gated["measured"], *ratios


def published_table(results):
    cells = []
    for what, context, full, gated, *ratios in published_experiment(results):
        form = ",.0f" if what == "prefill" else ",.2f"
        times = [format(time, form) for time in (full, gated)]
        cells.append([what, f"{context:,}"] + times + [f"{ratio:.2f} x" for ratio in ratios])
    titles = ["of", "context", "full ms", "WG-KV ms", "measured", "predicted", "published"]
    return lines(titles, cells)


def launches(rows):
    took = [float(row["launch_us"]) for row in rows if row.get("launch_us")]
    middle = statistics.median(took)
    return f"a launch took {min(took):.1f} to {max(took):.1f} us, {middle:.1f} at the median"


def print_host(rows):
    """How fast the host was around the runs, and how often others disturbed it."""
    if any(row.get("launch_us") for row in rows):
        print(f"Host: around the runs {launches(rows)}.")
    if rows and all(row.get("host_now_error_percent") for row in rows):
        of = total(rows, "host_now_error_percent")
        print(
            f"Predicted for the host as it was then: {of['median']} % at the median, "
            f"{of['within3']} of {of['runs']} within 3 %, {of['within8']} within 8 %, worst "
            f"{of['worst']} %."
        )
    watched = [row for row in rows if row.get("steps_disturbed")]
    if watched:
        print(
            f"Disturbed in each repetition: {sum(int(row['steps_disturbed']) for row in watched)} "
            f"of {sum(int(row['steps']) for row in watched):,} steps."
        )


def show(results):
    sums = []
    for file, rows in results.runs.items():
        if not rows:
            continue
        print(f"\n{file}\n")
        print("\n".join(table(rows, {})))
        sums.append((file, total(rows)))
    if results.beside:
        print("\nbeside other traffic on the link\n")
        print("\n".join(table(results.beside, {})))
        sums.append(("beside other traffic", total(results.beside)))
    if results.prompts:
        print("\nprompts\n")
        print("\n".join(prompt_table(results.prompts)))
        sums.append(("prompts", total(results.prompts, "prefill_error_percent")))
    rows = results.all()
    if rows:
        sums.append(("all decode steps", total(rows)))
    if not sums:
        return False
    print("\n| runs of | runs | median % | within 3 % | within 8 % | worst % |\n|---|---|---|---|---|---|")
    for what, of in sums:
        cells = (what, of["runs"], of["median"], of["within3"], of["within8"], of["worst"])
        print("| " + " | ".join(map(str, cells)) + " |")
    grid = parts(results.runs["validation"])[0] if results.runs["validation"] else []
    if grid:
        pairs, right, apart = order(grid)
        print(f"\nOrder: {right} of {pairs} pairs as measured; the others within {apart:.1f} %.")
    if results.recorded:
        recordings, within = exposed_recalls(results)
        print(f"Exposed recall: {within} of {recordings} recordings within 10 % or 50 us.")
    print_host(rows)
    units = sum(int(row["units_compared"]) for row in rows)
    wrong = [row for row in rows if float(row["units_equal_percent"]) < 100]
    print(f"Selected units: {units / 1e6:,.0f} million compared; {len(wrong)} runs with others.")
    return True


def pages(results):
    """The tables of each page, in its order."""
    others = of_machines(OTHERS)
    grid, pieces, second = parts(results.runs["validation"])
    return {
        "h200-validation.md": [
            method_table(grid),
            table(grid, others),
            table(pieces, others),
            table(second, others),
            table(results.beside, others),
            prompt_table(results.prompts),
        ],
        "h200-louiskv-prkv-validation.md": [table(results.runs[RUN_FILES[1]], others)],
        "h200-pariskv-wgkv-validation.md": [
            table(results.runs[RUN_FILES[2]], others),
            published_table(results),
        ],
        "h200-shadowkv-validation.md": [
            table(results.runs[RUN_FILES[3]], others),
        ],
    }


def with_tables(name, text, tables):
    """The page's text, in which the next table with the same titles is replaced by each."""
    at = 0
    for new in tables:
        found = re.compile(re.escape(new[0]) + r"\n(\|.*\n)*").search(text, at)
        if not found:
            raise SystemExit(
                f"report.py: {name} lacks a table titled {new[0]}: put those titles where it belongs"
            )
        text = text[: found.start()] + "\n".join(new) + "\n" + text[found.end() :]
        at = found.start() + 1
    return text


def write(path, titles, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, titles, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def titles_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return next(csv.reader(file))


def titles_with(path, rows):
    """The file's, and what all rows have beside them."""
    titles = titles_of(path)
    return titles + [title for title in rows[0] if title not in titles
                     and all(row.get(title) is not None for row in rows)]


def adopt(folder, name, letter):
    new, old = Results(folder, name), Results(HERE, "h200")
    for rows, those in ((new.all(), old.all()), (new.prompts, old.prompts),
                        (new.recorded, old.recorded)):
        lacking = set(map(key, those)) - set(map(key, rows))
        if lacking:
            raise SystemExit(
                f"report.py: {folder}/{name}-*.csv lack {len(lacking)} of the runs here, such as "
                f"{' '.join(filter(None, min(lacking)))}: run measure.sh to its end"
            )
    others = HERE / "h200-other-machines.csv"
    recalls = HERE / "h200-exposed-recall.csv"
    machine = old.recorded[0]["machine"]
    of_before = [row | {"machine": machine} for row in old.all()]
    write(others, titles_of(others), of_before + read(others))
    of_letter = [row | {"machine": letter} for row in new.recorded]
    write(recalls, titles_of(recalls), of_letter + read(recalls))
    files = new.runs | new.prompts_by_file | {"background-validation": new.beside}
    for file, rows in files.items():
        path = HERE / f"h200-{file}.csv"
        write(path, titles_with(path, rows), rows)


def main(arguments):
    if len(arguments) == 2 and not arguments[0].startswith("-"):
        folder, name = arguments
        if not show(Results(folder, name)):
            print(f"report.py: no {folder}/{name}-*.csv: write some with measure.sh", file=sys.stderr)
            return 1
        return 0
    if len(arguments) == 4 and arguments[0] == "--adopt":
        adopt(*arguments[1:])
        return 0
    if arguments not in (["--write"], ["--check"]):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    results = Results(HERE, "h200")
    faults = []
    for name, tables in pages(results).items():
        path = HERE / name
        text = path.read_text(encoding="utf-8")
        new = with_tables(name, text, tables)
        if new == text:
            continue
        if arguments == ["--write"]:
            path.write_text(new, encoding="utf-8")
        else:
            for old_line, line in zip(text.splitlines(), new.splitlines()):
                if old_line != line:
                    faults.append(f"{name} has: {old_line}\n  and should have: {line}")
    for fault in faults:
        print(f"report.py: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (KeyError, ValueError) as error:
        sys.exit(f"report.py: a CSV file is not as measure.sh writes it ({error!r}): measure it anew")
