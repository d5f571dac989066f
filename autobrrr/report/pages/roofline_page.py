"""The roofline as a page: its roofs and what was measured under them, tables, and the curves behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timezone

from autobrrr.quantities import duration, share
from autobrrr.report import page_model as pm
from autobrrr.report.pages import roofline_figures as of
from autobrrr.roofline.roofline_records import FlameBox, Roofline, SweepPoint

COLOURS = ("memory", "overhead", "sync", "input", "communication", "host")
SIZE = (900.0, 430.0)
MEANS = (
    "How fast a kernel can be at most, by how many operations it makes for each byte it moves. "
    "Under the slope memory is the limit, under the flat part computing."
)
POINTS = (
    "Points are kernels that were measured here. A square matmul counts each matrix once; one that fits "
    "into the cache may lie above the slope. Dashed: one thread."
)


def roofline_page(found: Roofline) -> pm.ReportPage:
    """The page."""
    measured_at = datetime.fromtimestamp(found.measured_at_unix_s, timezone.utc)
    told, busy = [*of.spec_lines(found), *of.sentences(found)], found.waited_share or 0.0
    warning = f"Others used the cores for {share(busy)} of the time: the roofs may be too low."
    return pm.ReportPage(
        kind="roofline",
        title=found.device,
        about=[
            f"torch {found.torch}",
            f"Python {found.python}",
            f"measured {measured_at:%Y-%m-%d %H:%M} UTC",
        ],
        sections=pm.filled(
            pm.section("", pm.Line(text=warning, tone="worse") if busy > 0.1 else None),
            _roofline(found),
            pm.section("What the figures mean", pm.listed(told) if told else None),
            pm.section("Figures", _table(found)),
            *_sweep(found),
            _matmul(found),
            pm.section(
                "Where the time of one addition goes", None if found.flame is None else _flame(found.flame)
            ),
            pm.section(
                "Do it again",
                pm.Line(text=f"autobrrr roofline --threads {found.threads} --html FILE", tone="code"),
                on="page",
            ),
        ),
        data=found,
        file="roofline.json",
    )


def _roofline(found: Roofline) -> pm.Section:
    """FLOP/s against FLOP/byte, both logarithmic: every roof, and every measured kernel below them."""
    every = of.roofs(found)
    if not every:
        return pm.section("Roofline")
    points = [kernel for run in of.runs(found) for kernel in of.under_roof(run)]
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(dict.fromkeys(r.name for r in every))}
    low = min([roof.ridge / 16 for roof in every] + [kernel.intensity for kernel in points])
    high = max([roof.ridge * 16 for roof in every] + [kernel.intensity for kernel in points])
    lines = [_roof(roof, colours[roof.name], low, high, roof.threads < found.threads) for roof in every]
    for run in of.runs(found):
        for group in dict.fromkeys(kernel.group for kernel in of.under_roof(run)):
            marks = [_mark(kernel, run) for kernel in of.under_roof(run) if kernel.group == group]
            name = "x * 2, repeated" if group == "pointwise" else f"matmuls, {group}"
            colour = colours.get(group, "compute")
            lines.append(pm.Series(name=name, colour=colour, points=marks, is_joined=False))
    best = max(every, key=lambda roof: roof.flops)
    drawn = pm.Chart(
        title="",
        says=f"Roofline of {found.device}: the highest roof is {best.name}, {of.rate(best.flops, 'FLOP/s')}; "
        f"its ridge point lies at {best.ridge:.3g} FLOP/byte; the tables below have all figures.",
        lines=lines,
        name_y=lambda value: of.rate(value, "FLOP/s"),
        name_x="arithmetic intensity, FLOP/byte",
        uprights=[(roof.ridge, f"ridge {roof.ridge:.3g}") for roof in every if roof.threads == found.threads],
        size=SIZE,
    )
    return pm.section(
        "Roofline", pm.Line(text=MEANS), drawn, pm.Line(text=POINTS, tone="muted"), _ridges(every), on="page"
    )


def _mark(kernel: of.KernelPoint, run: Roofline) -> pm.Point:
    reached = f"{of.rate(kernel.flops, 'FLOP/s')} at {kernel.intensity:.3g} FLOP/byte"
    said = f"{kernel.name}, {_threads(run.threads)}: {reached}"
    return pm.Point(x=kernel.intensity, y=kernel.flops, words=said)


def _roof(roof: of.Roof, colour: str, low: float, high: float, is_dashed: bool) -> pm.Series:
    return pm.Series(
        name="",
        colour=colour,
        points=[pm.Point(x=x, y=min(roof.flops, x * roof.bytes_per_s)) for x in (low, roof.ridge, high)],
        is_dotted=False,
        is_dashed=is_dashed,
        label=f"{roof.name}, {_threads(roof.threads)}",
    )


def _ridges(every: list[of.Roof]) -> pm.PageTable:
    return pm.PageTable(
        title="Roofs and ridge points. Left of its ridge point a kernel is bound by memory, right of it by "
        "computing.",
        heads=("roof", "#threads", "#peak", "#memory", "#ridge point"),
        rows=[
            [
                *(pm.Cell(text=roof.name), pm.figure(str(roof.threads), roof.threads)),
                pm.figure(of.rate(roof.flops, "FLOP/s"), roof.flops),
                pm.figure(of.rate(roof.bytes_per_s, "B/s"), roof.bytes_per_s),
                pm.figure(f"{roof.ridge:.3g} FLOP/byte", roof.ridge),
            ]
            for roof in every
        ],
    )


def _table(found: Roofline) -> pm.PageTable:
    every = of.runs(found)
    return pm.PageTable(
        title="Every figure that was measured.",
        heads=("figure", *(f"#-{_threads(run.threads)}" for run in every)),
        rows=[pm.cells(*row) for row in of.rows(found)],
    )


def _sweep(found: Roofline) -> Iterator[pm.Section]:
    every = [run for run in of.runs(found) if run.sweep]
    kinds: tuple[tuple[str, str, Callable[[SweepPoint], float]], ...] = (
        ("Runtime of x * 2, repeated", "", lambda point: float(point.runtime_ns)),
        ("FLOP/s of x * 2, repeated", "FLOP/s", lambda point: point.flops),
        ("Bandwidth of x * 2, repeated", "B/s", lambda point: point.bytes_per_s),
    )
    for title, unit, value in kinds if every else ():
        label: Callable[[float], str] = (lambda y, unit=unit: of.rate(y, unit)) if unit else duration  # type: ignore[misc]
        lines = [
            pm.Series(
                name=_threads(run.threads),
                colour=COLOURS[index % len(COLOURS)],
                points=[
                    pm.Point(x=each.repeat, y=value(each), words=label(value(each))) for each in run.sweep
                ],
            )
            for index, run in enumerate(every)
        ]
        ridge, first, last = found.ridge_ops_per_element, every[0].sweep[0], every[0].sweep[-1]
        drawn = pm.Chart(
            title=title,
            says=f"{title}, from {first.repeat} to {last.repeat} repeats",
            lines=lines,
            name_y=label,
            name_x="repeats",
            uprights=[(ridge, f"ridge {ridge:.0f}")] if ridge else [],
        )
        yield pm.section("", drawn, on="both" if unit == "FLOP/s" else "page", beside=True)


def _matmul(found: Roofline) -> pm.Section:
    lines = [
        pm.Series(
            name=dtype,
            colour=COLOURS[index % len(COLOURS)],
            points=[
                pm.Point(
                    x=float(each.n), y=each.flops, words=f"n = {each.n}: {of.rate(each.flops, 'FLOP/s')}"
                )
                for each in found.matmul
                if each.dtype == dtype
            ],
        )
        for index, dtype in enumerate(dict.fromkeys(each.dtype for each in found.matmul))
    ]
    title = "FLOP/s of square matmuls against n"
    drawn = pm.Chart(title=title, says=title, lines=lines, name_y=lambda y: of.rate(y, "FLOP/s"), name_x="n")
    return pm.section("", drawn if lines else None, beside=True)


def _flame(root: FlameBox) -> pm.PageTable:
    return pm.PageTable(
        title="A part stands below the whole that it is in, with its share of the addition.",
        heads=("-part", "#-time", "#-share", "", "-measured as"),
        rows=list(_flame_rows(root, root.ns, 0)),
    )


def _flame_rows(box: FlameBox, whole_ns: float, depth: int) -> Iterator[list[pm.Cell]]:
    part = box.ns / whole_ns if whole_ns > 0 else 0.0
    inside = f"└{'─' * (depth - 1)} " if depth else ""
    name, took, spent = f"{inside}{box.name}", of.box_time(box.ns), share(part)
    yield pm.cells(name, took, spent, pm.bar(part, "overhead"), box.how)
    for each in sorted(box.parts, key=lambda one: -one.ns):
        yield from _flame_rows(each, whole_ns, depth + 1)


def _threads(threads: int) -> str:
    return f"{threads} thread{'s' if threads > 1 else ''}"
