"""The roofline for people at a terminal: a table, two plots, sentences, and the flame where asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autobrrr.quantities import share
from autobrrr.report.roofline_figures import box_time, rate, rows, runs, sentences, spec_lines
from autobrrr.report.text.roofline_plot import Series, plot
from autobrrr.report.text.trace_text import WIDTH, wrapped
from autobrrr.roofline.roofline_records import FlameBox, Roofline

MARKS = "o*x+"


def render(found: Roofline) -> str:
    """The whole report, at most WIDTH columns wide."""
    blocks = [[*wrapped(f"{found.device}: torch {found.torch}, Python {found.python}")], list(_table(found))]
    sweep = _sweep(found)
    if sweep:
        blocks.append(["x * 2 repeated on a large array: FLOP/s against repeats", *sweep])
    matmul = _matmul(found)
    if matmul:
        blocks.append(["square matmuls: FLOP/s against n", *matmul])
    blocks.append([line for text in (*spec_lines(found), *sentences(found)) for line in wrapped(text)])
    if found.flame is not None:
        blocks.append(["where the time of one addition goes", *flame(found.flame)])
    return "\n\n".join("\n".join(block) for block in blocks if block)


def flame(root: FlameBox, depth: int = 0, whole_ns: float | None = None) -> Iterator[str]:
    """Boxes from the outside in: each as wide as its share of the whole."""
    whole = whole_ns or root.ns
    part = root.ns / whole if whole > 0 else 0.0
    name = "  " * depth + root.name
    yield f"{name:<36.36}{box_time(root.ns):>9}{share(part):>9}  {'█' * round(part * (WIDTH - 56)) or '▏'}"
    for each in sorted(root.parts, key=lambda box: -box.ns):
        yield from flame(each, depth + 1, whole)


def _table(found: Roofline) -> Iterator[str]:
    every = runs(found)
    if len(every) > 1:
        heads = [f"{run.threads} thread{'s' if run.threads > 1 else ''}" for run in every]
        yield " " * 36 + "".join(f"{head:>16}" for head in heads)
    for name, cell in rows(found):
        yield f"{name:<36}" + "".join(f"{cell(run):>16}" for run in every)


def _sweep(found: Roofline) -> list[str]:
    series = [
        Series(
            name=f"{run.threads} thread{'s' if run.threads > 1 else ''}",
            mark=MARKS[index],
            points=[(point.repeat, point.flops) for point in run.sweep],
        )
        for index, run in enumerate(runs(found))
        if run.sweep
    ]
    return _with_legend(series)


def _matmul(found: Roofline) -> list[str]:
    dtypes = list(dict.fromkeys(point.dtype for point in found.matmul))
    series = [
        Series(
            name=dtype,
            mark=MARKS[index % len(MARKS)],
            points=[(point.n, point.flops) for point in found.matmul if point.dtype == dtype],
        )
        for index, dtype in enumerate(dtypes)
    ]
    return _with_legend(series)


def _with_legend(series: Sequence[Series]) -> list[str]:
    lines = plot(series, lambda value: rate(value, ""))
    if lines:
        lines.append(" " * 12 + "   ".join(f"{each.mark} {each.name}" for each in series))
    return lines
