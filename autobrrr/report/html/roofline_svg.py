"""Log-log charts and the flame as SVG, coloured by the page's style sheet alone."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from autobrrr.report.log_scale import LogScale, around
from autobrrr.report.quantities import duration, share
from autobrrr.roofline.roofline_records import FlameBox

WIDTH, HEIGHT = 560.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 92.0, 14.0, 10.0, 46.0
FLAME_WIDTH, ROW = 1100.0, 26.0
LETTER = 6.4  # a letter's width in the flame


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLine:
    """A series; `colour` names a class of the style sheet."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]


def chart(
    lines: Sequence[ChartLine], name_y: Callable[[float], str], upright: Sequence[tuple[float, str]]
) -> str:
    """A chart with both axes logarithmic.

    Args:
        lines: At least one, with at least one point.
        name_y: A value of the vertical axis in words.
        upright: Values of the horizontal axis to draw a line at, and its name.
    """
    across = around((x for line in lines for x, _ in line.points), 1.0001)
    up = around(y for line in lines for _, y in line.points)
    return (
        f'<svg viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img">'
        + "".join(_axes(lines, name_y, across, up))
        + "".join(_uprights(upright, across))
        + "".join(_line(line, across, up) for line in lines)
        + "".join(_legend(lines))
        + "</svg>"
    )


def flame(root: FlameBox) -> str:
    """Boxes as wide as their time, parts under the whole."""
    depth = _depth(root)
    boxes = "".join(_boxes(root, 0.0, 0, FLAME_WIDTH / root.ns if root.ns > 0 else 0.0))
    return f'<svg class="flame" viewBox="0 0 {FLAME_WIDTH:.0f} {depth * ROW:.0f}" role="img">{boxes}</svg>'


def _axes(
    lines: Sequence[ChartLine], name_y: Callable[[float], str], across: LogScale, up: LogScale
) -> Iterator[str]:
    for value in up.marks():
        y = _y(value, up)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="n" x="{LEFT - 8}" y="{y + 4:.1f}">{_text(name_y(value))}</text>'
    taken = -100.0
    for value in sorted({x for line in lines for x, _ in line.points}):
        x = _x(value, across)
        if x - taken > 26:
            yield f'<text class="m" x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}">{value:g}</text>'
            taken = x


def _uprights(upright: Sequence[tuple[float, str]], across: LogScale) -> Iterator[str]:
    for value, name in upright:
        if across.low <= value <= across.high:
            x = _x(value, across)
            foot = HEIGHT - BOTTOM
            yield f'<line class="ridge" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{foot}"/>'
            yield f'<text class="ridge" x="{x + 4:.1f}" y="{foot - 6}">{_text(name)} {value:.0f}</text>'


def _line(line: ChartLine, across: LogScale, up: LogScale) -> str:
    places = [(_x(x, across), _y(y, up)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places)
    return f'<g class="{line.colour}"><polyline points="{path}"/>{dots}</g>'


def _legend(lines: Sequence[ChartLine]) -> Iterator[str]:
    x = LEFT
    for line in lines:
        yield f'<g class="{line.colour}"><circle cx="{x + 4:.0f}" cy="{HEIGHT - 12}" r="4"/></g>'
        yield f'<text x="{x + 13:.0f}" y="{HEIGHT - 8}">{_text(line.name)}</text>'
        x += 30 + 7 * len(line.name)


def _boxes(box: FlameBox, left: float, depth: int, scale: float) -> Iterator[str]:
    width = max(box.ns * scale, 1.0)
    words = f"{box.name}, {duration(box.ns)}"
    fits = (
        words if len(words) * LETTER < width - 10 else box.name if len(box.name) * LETTER < width - 10 else ""
    )
    whole = FLAME_WIDTH / scale if scale else 1.0
    yield (
        f'<g class="depth{min(depth, 3)}">'
        f"<title>{_text(words)} ({share(box.ns / whole)}): {_text(box.how)}</title>"
        f'<rect x="{left:.1f}" y="{depth * ROW:.1f}" width="{width:.1f}" height="{ROW - 2:.1f}" rx="3"/>'
    )
    if fits:
        yield f'<text x="{left + 6:.1f}" y="{depth * ROW + 16:.1f}">{_text(fits)}</text>'
    yield "</g>"
    for part in sorted(box.parts, key=lambda each: -each.ns):
        yield from _boxes(part, left, depth + 1, scale)
        left += part.ns * scale


def _depth(box: FlameBox) -> int:
    return 1 + max((_depth(part) for part in box.parts), default=0)


def _x(value: float, across: LogScale) -> float:
    return LEFT + across.share(value) * (WIDTH - LEFT - RIGHT)


def _y(value: float, up: LogScale) -> float:
    return HEIGHT - BOTTOM - up.share(value) * (HEIGHT - TOP - BOTTOM)


def _text(text: str) -> str:
    return html.escape(text)
