"""The flame of one addition: boxes as wide as their time, parts under the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autobrrr.quantities import duration, share
from autobrrr.roofline.roofline_records import FlameBox

WIDTH, ROW = 1100.0, 26.0
LETTER = 6.8  # a letter's width


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnBox:
    """One box, its words where they fit, and all of them for a pointer."""

    x: float
    y: float
    width: float
    height: float
    depth: int
    label: str
    words: str


def flame_boxes(root: FlameBox) -> list[DrawnBox]:
    """All boxes, the whole first."""
    return list(_boxes(root, 0.0, 0, WIDTH / root.ns if root.ns > 0 else 0.0))


def _boxes(box: FlameBox, left: float, depth: int, scale: float) -> Iterator[DrawnBox]:
    width = max(box.ns * scale, 1.0)
    words = f"{box.name}, {duration(box.ns)}"
    whole_ns = WIDTH / scale if scale else 1.0
    yield DrawnBox(
        x=round(left, 1),
        y=depth * ROW,
        width=round(width, 1),
        height=ROW - 2,
        depth=min(depth, 3),
        label=next((each for each in (words, box.name) if len(each) * LETTER < width - 10), ""),
        words=f"{words} ({share(box.ns / whole_ns)}): {box.how}",
    )
    for part in sorted(box.parts, key=lambda each: -each.ns):
        yield from _boxes(part, left, depth + 1, scale)
        left += part.ns * scale
