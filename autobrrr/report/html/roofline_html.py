"""The roofline as one page: its roofs and what was measured under them, tables, and the curves behind it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

from autobrrr.quantities import duration, share
from autobrrr.report.html.page_charts import ChartFrame, ChartLine, ChartPoint, DrawnChart, chart
from autobrrr.report.html.page_tables import Cell, PageTable, bar, figure, words
from autobrrr.report.html.page_template import render
from autobrrr.report.roofline_figures import (
    Roof,
    box_time,
    rate,
    roofs,
    rows,
    runs,
    sentences,
    spec_lines,
    under_roof,
)
from autobrrr.roofline.roofline_records import FlameBox, Roofline

COLOURS = ("memory", "overhead", "sync", "input", "communication", "host")
SIZE = (900.0, 430.0)


def page(found: Roofline) -> str:
    """The page."""
    measured_at = datetime.fromtimestamp(found.measured_at_unix_s, timezone.utc)
    return render(
        "roofline",
        data=found,
        data_name="roofline.json",
        kind="roofline",
        title=found.device,
        about=[
            f"torch {found.torch}",
            f"Python {found.python}",
            f"measured {measured_at:%Y-%m-%d %H:%M} UTC",
        ],
        busy=found.waited_share,
        roofline=_roofline(found),
        ridges=_ridges(found),
        figures=_table(found),
        told=[*spec_lines(found), *sentences(found)],
        charts=[*_sweep(found), *_matmul(found)],
        flame=None if found.flame is None else _flame(found.flame),
        command=f"autobrrr roofline --threads {found.threads} --html FILE",
    )


def _roofline(found: Roofline) -> DrawnChart | None:
    """FLOP/s against FLOP/byte, both logarithmic: every roof, and every measured kernel below them."""
    every = roofs(found)
    points = [(run, kernel) for run in runs(found) for kernel in under_roof(run)]
    if not every:
        return None
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(dict.fromkeys(r.name for r in every))}
    low = min([roof.ridge / 16 for roof in every] + [kernel.intensity for _, kernel in points])
    high = max([roof.ridge * 16 for roof in every] + [kernel.intensity for _, kernel in points])
    lines = [_roof_line(roof, colours[roof.name], low, high, roof.threads < found.threads) for roof in every]
    for run in runs(found):
        for group in dict.fromkeys(kernel.group for kernel in under_roof(run)):
            marks = [
                ChartPoint(
                    x=kernel.intensity,
                    y=kernel.flops,
                    words=f"{kernel.name}, {_threads(run)}: {rate(kernel.flops, 'FLOP/s')} "
                    f"at {kernel.intensity:.3g} FLOP/byte",
                )
                for kernel in under_roof(run)
                if kernel.group == group
            ]
            colour = colours.get(group, "compute")
            lines.append(ChartLine(name=_kernels_name(group), colour=colour, points=marks, is_joined=False))
    best = max(every, key=lambda roof: roof.flops)
    says = (
        f"Roofline of {found.device}: the highest roof is {best.name} with {rate(best.flops, 'FLOP/s')}, its "
        f"ridge point lies at {best.ridge:.3g} FLOP/byte; the tables below have all figures."
    )
    widest = [roof for roof in every if roof.threads == found.threads]
    return chart(
        ChartFrame(
            title="",
            says=says,
            name_y=lambda value: rate(value, "FLOP/s"),
            name_x="arithmetic intensity, FLOP/byte",
            uprights=[(roof.ridge, f"ridge {roof.ridge:.3g}") for roof in widest],
            size=SIZE,
        ),
        lines,
    )


def _roof_line(roof: Roof, colour: str, low: float, high: float, is_dashed: bool) -> ChartLine:
    places = (low, roof.ridge, high)
    return ChartLine(
        name="",
        colour=colour,
        points=[ChartPoint(x=x, y=min(roof.flops, x * roof.bytes_per_s)) for x in places],
        is_dotted=False,
        is_dashed=is_dashed,
        label=f"{roof.name}, {roof.threads} thread{'s' if roof.threads > 1 else ''}",
    )


def _ridges(found: Roofline) -> PageTable:
    return PageTable(
        caption="Roofs and ridge points. Left of its ridge point a kernel is bound by memory, right of it by "
        "computing.",
        heads=("roof", "#threads", "#peak", "#memory", "#ridge point"),
        rows=[
            [
                Cell(text=roof.name),
                figure(str(roof.threads), roof.threads),
                figure(rate(roof.flops, "FLOP/s"), roof.flops),
                figure(rate(roof.bytes_per_s, "B/s"), roof.bytes_per_s),
                figure(f"{roof.ridge:.3g} FLOP/byte", roof.ridge),
            ]
            for roof in roofs(found)
        ],
    )


def _table(found: Roofline) -> PageTable:
    every = runs(found)
    return PageTable(
        caption="Every figure that was measured.",
        heads=("figure", *(f"-{_threads(run)}" for run in every)),
        rows=[[Cell(text=name), *(Cell(text=cell(run)) for run in every)] for name, cell in rows(found)],
    )


def _sweep(found: Roofline) -> Iterator[DrawnChart]:
    every = [run for run in runs(found) if run.sweep]
    if not every:
        return
    for title, unit, value in (
        ("Runtime of x * 2, repeated", "", lambda point: float(point.runtime_ns)),
        ("FLOP/s of x * 2, repeated", "FLOP/s", lambda point: point.flops),
        ("Bandwidth of x * 2, repeated", "B/s", lambda point: point.bytes_per_s),
    ):
        label = (lambda y, unit=unit: rate(y, unit)) if unit else duration
        lines = [
            ChartLine(
                name=_threads(run),
                colour=COLOURS[index % len(COLOURS)],
                points=[
                    ChartPoint(x=float(point.repeat), y=value(point), words=label(value(point)))
                    for point in run.sweep
                ],
            )
            for index, run in enumerate(every)
        ]
        ridge = found.ridge_ops_per_element
        yield chart(
            ChartFrame(
                title=title,
                says=f"{title}, from {every[0].sweep[0].repeat} to {every[0].sweep[-1].repeat} repeats",
                name_y=label,
                name_x="repeats",
                uprights=[(ridge, f"ridge {ridge:.0f}")] if ridge else [],
            ),
            lines,
        )


def _matmul(found: Roofline) -> Iterator[DrawnChart]:
    lines = [
        ChartLine(
            name=dtype,
            colour=COLOURS[index % len(COLOURS)],
            points=[
                ChartPoint(
                    x=float(point.n), y=point.flops, words=f"n = {point.n}: {rate(point.flops, 'FLOP/s')}"
                )
                for point in found.matmul
                if point.dtype == dtype
            ],
        )
        for index, dtype in enumerate(dict.fromkeys(point.dtype for point in found.matmul))
    ]
    if lines:
        title = "FLOP/s of square matmuls against n"
        yield chart(
            ChartFrame(title=title, says=title, name_y=lambda y: rate(y, "FLOP/s"), name_x="n"), lines
        )


def _flame(root: FlameBox) -> PageTable:
    return PageTable(
        caption="A part stands below the whole that it is in, with its share of the addition.",
        heads=("-part", "-time", "-share", "", "-measured as"),
        rows=list(_flame_rows(root, root.ns, 0)),
    )


def _flame_rows(box: FlameBox, whole_ns: float, depth: int) -> Iterator[list[Cell]]:
    part = box.ns / whole_ns if whole_ns > 0 else 0.0
    inside = f"└{'─' * (depth - 1)} " if depth else ""
    yield [
        *words(f"{inside}{box.name}", box_time(box.ns), share(part)),
        bar(part, "overhead"),
        *words(box.how),
    ]
    for each in sorted(box.parts, key=lambda one: -one.ns):
        yield from _flame_rows(each, whole_ns, depth + 1)


def _kernels_name(group: str) -> str:
    return "x * 2, repeated" if group == "pointwise" else f"matmuls, {group}"


def _threads(run: Roofline) -> str:
    return f"{run.threads} thread{'s' if run.threads > 1 else ''}"
