"""The roofline as one page: no network, no library, light and dark; plots are SVG."""

from __future__ import annotations

import html
from collections.abc import Iterator
from importlib import resources

from autobrrr.report.html.roofline_svg import ChartLine, chart, flame
from autobrrr.report.quantities import duration
from autobrrr.report.roofline_figures import rate, rows, runs, sentences, spec_lines
from autobrrr.roofline.roofline_records import Roofline

COLOURS = ("a", "b", "c", "d")


def page(found: Roofline) -> str:
    """The page."""
    style = resources.files("autobrrr.report.html").joinpath("roofline_page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(found.device)} - autobrrr roofline</title><style>{style}</style></head>"
        f"<body><main>{''.join(_body(found))}</main></body></html>"
    )


def _body(found: Roofline) -> Iterator[str]:
    yield f"<h1>{_text(found.device)}</h1>"
    yield f'<p class="muted">torch {_text(found.torch)}, Python {_text(found.python)}</p>'
    yield "<section><h2>Figures</h2>" + _table(found) + "</section>"
    told = [*spec_lines(found), *sentences(found)]
    if told:
        yield "<section><h2>What they mean</h2><ul>"
        yield "".join(f"<li>{_text(line)}</li>" for line in told) + "</ul></section>"
    yield "<div class='columns'>"
    yield from _sweep(found)
    yield from _matmul(found)
    yield "</div>"
    if found.flame is not None:
        yield "<section><h2>Where the time of one addition goes</h2>"
        yield flame(found.flame) + "</section>"


def _table(found: Roofline) -> str:
    every = runs(found)
    heads = "".join(
        f'<th class="n">{run.threads} thread{"s" if run.threads > 1 else ""}</th>' for run in every
    )
    body = "".join(
        f"<tr><td>{_text(name)}</td>"
        + "".join(f'<td class="n">{_text(cell(run))}</td>' for run in every)
        + "</tr>"
        for name, cell in rows(found)
    )
    return f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _sweep(found: Roofline) -> Iterator[str]:
    every = [run for run in runs(found) if run.sweep]
    if not every:
        return
    names = [f"{run.threads} thread{'s' if run.threads > 1 else ''}" for run in every]
    for title, unit, value in (
        ("Runtime against repeats of x * 2", "", lambda point: float(point.runtime_ns)),
        ("FLOP/s against repeats", "FLOP/s", lambda point: point.flops),
        ("Bandwidth against repeats", "B/s", lambda point: point.bytes_per_s),
    ):
        lines = [
            ChartLine(
                name=name,
                colour=COLOURS[index % len(COLOURS)],
                points=[(float(point.repeat), value(point)) for point in run.sweep],
            )
            for index, (name, run) in enumerate(zip(names, every, strict=True))
        ]
        label = (lambda y, unit=unit: rate(y, unit)) if unit else duration
        upright = [(found.ridge_ops_per_element, "ridge")] if found.ridge_ops_per_element else []
        yield f"<section><h2>{title}</h2>{chart(lines, label, upright)}</section>"


def _matmul(found: Roofline) -> Iterator[str]:
    lines = [
        ChartLine(
            name=dtype,
            colour=COLOURS[index % len(COLOURS)],
            points=[(float(point.n), point.flops) for point in found.matmul if point.dtype == dtype],
        )
        for index, dtype in enumerate(dict.fromkeys(point.dtype for point in found.matmul))
    ]
    if lines:
        drawn = chart(lines, lambda y: rate(y, "FLOP/s"), [])
        yield f"<section><h2>Square matmuls against n</h2>{drawn}</section>"


def _text(text: str) -> str:
    return html.escape(text)
