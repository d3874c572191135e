#!/usr/bin/env python3
"""Includes between folders: none upward, and no circle at any level of the tree.

    tests/layers.py [ROOT]

Exit status 1, with a line for each fault, where a file includes one of a higher room, or where two
neighbours of one folder reach each other. The files that lie directly in a folder are one neighbour
of its subfolders. Tests may include everything.
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path, PurePosixPath

# What the files of a room may include, besides the room itself.
MAY_USE = {
    "traces": set(),
    "models": {"traces"},
    "sim": {"traces", "models"},
    "kernels": {"traces", "models"},
    "capture": {"traces", "models", "sim", "kernels"},
    "gui": {"traces", "models", "sim"},
    "kernels/runtime": set(),
    "kernels/device": {"kernels/runtime"},
    "kernels/attention": {"kernels/runtime", "kernels/device"},
    "kernels/decoder": {"kernels/runtime", "kernels/device"},
    "kernels/selection": {"kernels/runtime", "kernels/device"},
    "kernels/movement": {"kernels/runtime", "kernels/device"},
    "kernels/methods": {"kernels/runtime", "kernels/device"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
SOURCES = (".h", ".cc", ".cu", ".cuh")


def sources(root):
    """Paths of the project's sources; without git, of everything in its rooms."""
    rooms = sorted({name.split("/")[0] for name in MAY_USE})
    try:
        listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", *rooms],
                                check=True, capture_output=True, text=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        listed = [path.relative_to(root).as_posix()
                  for room in rooms for path in (root / room).rglob("*")]
    return {name for name in listed if name.endswith(SOURCES) and (root / name).is_file()}


def neighbours(source, target):
    """The folder in which two files part, and the neighbours there that they belong to."""
    a, b = PurePosixPath(source).parts, PurePosixPath(target).parts
    depth = next(i for i in range(len(a)) if i + 1 in (len(a), len(b)) or a[i] != b[i])
    name = lambda parts: parts[depth] if depth + 1 < len(parts) else "."
    return "/".join(a[:depth]), name(a), name(b)


def reached(graph, start):
    found, todo = set(), [start]
    while todo:
        for node in graph[todo.pop()]:
            if node not in found:
                found.add(node)
                todo.append(node)
    return found


def faults(includes):
    """Lines about `includes`, pairs of a file and one that it includes."""
    levels = defaultdict(lambda: defaultdict(dict))  # folder: neighbour: {neighbour: a pair}
    for source, target in includes:
        folder, a, b = neighbours(source, target)
        if a == b:
            continue
        levels[folder][a].setdefault(b, (source, target))
        levels[folder][b]
        prefix = folder + "/" if folder else ""
        if prefix + a in MAY_USE and prefix + b not in MAY_USE[prefix + a]:
            yield f"{source} includes {target}: {prefix + a} may not use {prefix + b}"
    for folder, graph in sorted(levels.items()):
        circle = {node for node in graph if node in reached(graph, node)}
        for a in sorted(circle):
            for b in sorted(graph[a]):
                if a in reached(graph, b):
                    source, target = graph[a][b]
                    yield f"circle in {folder or 'the project'}: {a} uses {b} ({source}: {target})"


def self_check():
    """The check finds what it is for."""
    upward = list(faults([("traces/a.h", "models/b.h")]))
    assert len(upward) == 1 and "may not use" in upward[0], upward
    circle = list(faults([("sim/cli/a.h", "sim/b.h"), ("sim/b.cc", "sim/cli/a.h")]))
    assert len(circle) == 2 and all("circle in sim" in line for line in circle), circle
    long = list(faults([("gui/x/1.h", "gui/y/2.h"), ("gui/y/2.h", "gui/z/3.h"),
                        ("gui/z/4.h", "gui/x/5.h")]))
    assert len(long) == 3, long
    assert not list(faults([("sim/a.h", "sim/b.h"), ("sim/b.h", "models/c/d.h")]))


def main():
    self_check()
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    files = sources(root)
    found = sorted(faults((name, target) for name in sorted(files)
                          for target in INCLUDE.findall((root / name).read_text())
                          if target in files))
    print("\n".join(found) if found else f"{len(files)} files: no upward include, no circle")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
