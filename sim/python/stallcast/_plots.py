"""Pictures by matplotlib."""

import numpy

from . import _core


def _axes(ax, size):
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=size, layout="constrained")[1]


def _bars(ax, names, sides, label):
    """Horizontal bars: for each name one of each side, the first name on top."""
    places = numpy.arange(len(names))
    height = 0.8 / len(sides)
    for i, (side, values) in enumerate(sides.items()):
        ax.barh(places + (i - (len(sides) - 1) / 2) * height, values, height, label=side)
    ax.set_yticks(places, names)
    ax.invert_yaxis()
    ax.set_xlabel(label)
    ax.legend()
    return ax


def roles(prediction, ax=None):
    times = {
        role: of for role, of in prediction.by_role.items() if of["busy_ms"] or of["exposed_ms"]
    }
    ax = _axes(ax, (7, 0.5 + 0.4 * len(times)))
    ax.set_title(f"{prediction.method} on {prediction.machine}: {prediction.step_mean_ms:.2f} ms")
    sides = {
        "busy": [of["busy_ms"] for of in times.values()],
        "GPU waits for it": [of["exposed_ms"] for of in times.values()],
    }
    return _bars(ax, list(times), sides, "ms a step")


def timeline(rows, step=None, ax=None):
    known = numpy.unique(rows.step[rows.step >= 0])
    if step is None:
        chosen = rows.step == known[0] if len(known) else numpy.full(len(rows), True)
    elif step not in known:
        steps = f"{known[0]} to {known[-1]}" if len(known) else "none"
        raise ValueError(f"no step {step}; there are {steps}")
    else:
        chosen = rows.step == step
    lanes = numpy.unique(rows.lane[chosen])
    ax = _axes(ax, (10, 0.8 + 0.35 * len(lanes)))
    begin = rows.start_ps[chosen].min() if chosen.any() else 0
    names = _core.roles()
    for role in numpy.unique(rows.role[chosen]):
        of_role = chosen & (rows.role == role)
        ax.barh(
            numpy.searchsorted(lanes, rows.lane[of_role]),
            rows.duration_ps[of_role] / 1e9,
            left=(rows.start_ps[of_role] - begin) / 1e9,
            height=0.8,
            color=f"C{role}" if role < 10 else "0.75",
            label=names[role],
        )
    ax.set_yticks(numpy.arange(len(lanes)), [rows.lanes[lane].name for lane in lanes])
    ax.invert_yaxis()
    ax.set_xlabel("ms")
    ax.set_title(rows.title, fontsize="medium", wrap=True)
    ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def comparison(compared, ax=None):
    rows = compared.record["groups" if compared.of_plan else "kinds"]
    ends = "_ms" if compared.of_plan else "_busy_ms"
    label = "ms in all steps" if compared.of_plan else "ms a step, busy"
    first = rows[0] if rows else {}
    sides = [
        key[: -len(ends)] for key in first if key.endswith(ends) and not key.startswith("idle_")
    ]
    ax = _axes(ax, (7, 0.8 + 0.5 * len(rows)))
    name = "group" if compared.of_plan else "kind"
    values = {side: [row[side + ends] for row in rows] for side in sides}
    return _bars(ax, [row[name] for row in rows], values, label)
