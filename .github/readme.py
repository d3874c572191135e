#!/usr/bin/env python3
"""Writes README.md from .github/README.in.md: runs its commands and fills in what they print.

    .github/readme.py [STALLCAST]     (default: build/bin/stallcast)

Of the marks in the template, {{TABLE}} and {{BEST}} are of the command above them, {{MS}}, {{MASS}}
and {{RANGE}} of the options in their row, {{REPLAY}} of its own line. {{RUNS NAME}} is a row of
capture/results/README.md."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = ROOT / ".github" / "README.in.md"
RESULTS = ROOT / "capture" / "results" / "README.md"
PROGRAM = str(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/bin/stallcast").resolve())
WIDTH = "72"
MADE = "<!-- Made by .github/readme.py from .github/README.in.md -->\n"


def run(command):
    """What a command of the README prints, run in the repository's root."""
    words = command.replace("\\\n", " ").split("#")[0].split()
    assert words[0] == "build/bin/stallcast", command
    return subprocess.run(
        [PROGRAM, *words[1:]],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": WIDTH},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout


def predictions(command):
    return json.loads(run(command + " --format json"))["predictions"]


def command_above(text, mark):
    """The last indented command before the mark."""
    blocks = re.findall(r"^    (build/bin/stallcast (?:.*\\\n)*.*)", text[: text.index(mark)], re.M)
    return blocks[-1]


def table(text):
    """A prediction's head and rows; the legend and the notes under them are left out."""
    lines = run(command_above(text, "{{TABLE}}")).split("\n")
    end = next(i for i, line in enumerate(lines) if line.startswith("Left out"))
    return "\n".join(("    " + line).rstrip() for line in lines[:end])


def fill_row(row, start):
    """A row of the table of questions."""
    if not re.search(r"{{(MS|MASS|RANGE)}}", row):
        return row
    options = row.split("|")[2].strip().strip("`")
    one = predictions(f"{start} {options}")[0]
    row = row.replace("{{MS}}", f"{one['step_mean_ms']:.1f} ms")
    row = row.replace("{{MASS}}", f"{one['attention_mass']:.3f}")
    if one["sampled_p10_ms"] is not None:
        row = row.replace("{{RANGE}}", f"{one['sampled_p10_ms']:.1f} to {one['sampled_p90_ms']:.1f} ms")
    return row


def measured_runs(text, name):
    """Number, median, within 8 %, worst."""
    row = next(line for line in text.split("\n") if line.startswith(f"| {name} |"))
    runs, median, _, within, worst = [cell.strip() for cell in row.split("|")[2:7]]
    return f"{runs} | {median} % | {within} | {worst} %"


def main():
    text = TEMPLATE.read_text()
    start = re.search(r"`(build/bin/stallcast predict [^`]*)`", text).group(1)
    text = text.replace("{{TABLE}}", table(text))
    text = "\n".join(fill_row(row, start) for row in text.split("\n"))
    if "{{BEST}}" in text:
        found = predictions(command_above(text, "{{BEST}}"))
        best = next(p for p in found if p["best"])
        full = next(p for p in found if p["method"] == "full")
        text = text.replace("{{BEST}}", f"`{best['method']}`, in {best['step_mean_ms']:.1f} ms a step")
        text = text.replace("{{FULL}}", f"{full['gpu_bytes'] / 2**30:.1f}")
    for line in re.findall(r"^    (.*){{REPLAY}}$", text, re.M):
        stages = json.loads(run(line.split("#")[0] + " --format json"))["stages"]
        text = text.replace(
            "{{REPLAY}}", f"{stages[0]['step_ms']:.2f} ms become {stages[-1]['step_ms']:.2f}"
        )
    results = RESULTS.read_text()
    text = re.sub(r"{{RUNS (.*?)}}", lambda mark: measured_runs(results, mark.group(1)), text)
    if "{{" in text:
        sys.exit("readme.py: unknown mark " + text[text.index("{{") :].split("\n")[0])
    (ROOT / "README.md").write_text(MADE + text)


main()
