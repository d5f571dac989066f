"""Draws rows of styled text as one SVG: a picture, or an animation of several screens of one size.

In: screens, each a list of rows of rich segments. Out: SVG that loads no font and runs no script. The same
rows give the same bytes. Lines, blocks and braille are drawn as shapes: browsers take them from other fonts,
of other widths.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from rich.cells import cell_len
from rich.color import blend_rgb
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME as THEME

Rows = Sequence[Sequence[Segment]]
WIDE, HIGH, MARGIN = 12, 24, 12  # of a cell, in units of the SVG: both divide by 2, 3 and 4
SEAM = 0.5  # beyond its cell, or a gap shows between neighbors where a cell is no whole number of pixels
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,Liberation Mono,monospace"
LINES, QUADRANTS, BRAILLE = range(0x2500, 0x2580), range(0x2596, 0x25A0), range(0x2800, 0x2900)
SHADES = {"░": 0.25, "▒": 0.5, "▓": 0.75}
DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))  # column and row, from the lowest bit


def picture(title: str, screens: Sequence[Rows], shown_s: Sequence[float] = ()) -> str:
    """The SVG of these screens.

    Args:
        title: What a reader hears who can't see it.
        screens: One, or more of one size that follow each other without end.
        shown_s: How long each of several is shown, seconds.
    """
    look = Look()
    columns = max(sum(segment.cell_length for segment in row) for row in screens[0])
    wide, high = columns * WIDE + 2 * MARGIN, len(screens[0]) * HIGH + 2 * MARGIN
    shown: dict[str, list[int]] = {}  # what stays, or comes back, is drawn once
    for number, screen in enumerate(screens):
        for y, row in enumerate(screen):
            for part in drawn(row, y * HIGH, look):
                shown.setdefault(part, []).append(number)
    # Papers come first: they must not hide what was drawn for an earlier screen.
    papers_first = sorted(shown, key=lambda part: (not part.startswith("<rect"), shown[part]))
    body = [
        f"<g{_when(look, numbers, shown_s)}>{''.join(parts)}</g>"
        for numbers, parts in groupby(papers_first, lambda part: shown[part])
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}"'
    )
    return "\n".join(
        [
            f'{head} role="img"><title>{escape(title)}</title>',
            f"<style>text{{font:20px {FONT}}}{look.css()}</style>",
            f'<rect width="{wide}" height="{high}" rx="8" fill="{THEME.background_color.hex}"/>',
            f'<g transform="translate({MARGIN},{MARGIN})">',
            *body,
            "</g></svg>\n",
        ]
    )


class Look:
    """The classes of a picture: each style and each course of time has one."""

    def __init__(self) -> None:
        self._styles: dict[str, str] = {}
        self._times: dict[str, str] = {}

    def style(self, css: str) -> str:
        return self._styles.setdefault(css, f"s{len(self._styles)}")

    def time(self, css: str) -> str:
        return self._times.setdefault(css, f"t{len(self._times)}")

    def css(self) -> str:
        """All begin with the last screen; readers who turned motion off see no other."""
        styles = "".join(f".{name}{{{css}}}" for css, name in self._styles.items())
        times = "".join(css.replace("NAME", name) for css, name in self._times.items())
        return styles + (
            f".h{{visibility:hidden}}@media(prefers-reduced-motion:no-preference){{{times}}}" * bool(times)
        )


def _when(look: Look, numbers: Sequence[int], shown_s: Sequence[float]) -> str:
    """The attributes of a part that stands on these screens."""
    if len(numbers) >= len(shown_s):
        return ""
    length_s, on = sum(shown_s), [number in numbers for number in range(len(shown_s))]
    frames = []
    for number, is_on in enumerate(on):
        if number == 0 or is_on != on[number - 1]:
            at = 100 * sum(shown_s[:number]) / length_s
            frames.append(f"{at:.4g}%{{visibility:{'visible' if is_on else 'hidden'}}}")
    timing = f"{length_s:g}s step-end {shown_s[-1] - length_s:g}s infinite"
    course = f".NAME{{animation:NAME {timing}}}@keyframes NAME{{{''.join(frames)}}}"
    return f' class="{"" if on[-1] else "h "}{look.time(course)}"'


def drawn(row: Sequence[Segment], y: int, look: Look) -> Iterator[str]:
    """The parts of a row, its top at `y`: backgrounds, shapes and runs of text."""
    x, inked = 0, []
    for (ink, paper), group in groupby(row, lambda segment: colors(segment.style or Style())):
        text = "".join(segment.text for segment in group)
        wide = WIDE * cell_len(text)
        if paper:
            yield f'<rect x="{x}" y="{y}" width="{wide}" height="{HIGH}" fill="{paper}"/>'
        inked.append((look.style(ink) if text.strip() else "", x, text))
        x += wide
    for name, x, text in inked:
        shapes: dict[str, str] = {}
        for column, char in enumerate(text):
            path = shape(char, x + column * WIDE, y)
            opacity = f' opacity="{SHADES[char]}"' if char in SHADES else ""
            shapes[opacity] = shapes.get(opacity, "") + path
        yield from (f'<path class="{name}"{how} d="{path}"/>' for how, path in shapes.items() if path)
        plain = "".join(" " if shape(char, 0, 0) else char for char in text)
        for run in re.finditer(r"\S+(?: \S+)*", plain):
            place = f'x="{x + run.start() * WIDE}" y="{y + 18}" textLength="{len(run[0]) * WIDE}"'
            yield f'<text class="{name}" {place}>{escape(run[0], quote=False)}</text>'


def colors(style: Style) -> tuple[str, str]:
    """CSS for the text, and the background color if it differs from the picture's, else empty."""
    ink = THEME.foreground_color if style.color is None else style.color.get_truecolor(THEME)
    paper = (
        THEME.background_color
        if style.bgcolor is None
        else style.bgcolor.get_truecolor(THEME, foreground=False)
    )
    if style.reverse:
        ink, paper = paper, ink
    if style.dim:
        ink = blend_rgb(ink, paper, 0.4)
    css = (
        f"fill:{ink.hex}"
        + ";font-weight:bold" * bool(style.bold)
        + ";text-decoration:underline" * bool(style.underline)
    )
    return css, "" if paper == THEME.background_color else paper.hex


def shape(char: str, x: int, y: int) -> str:
    """The path of a line, block or braille character in the cell at (x, y); empty for text."""
    code = ord(char)
    if code in BRAILLE:
        return "".join(
            box(x + 1 + 6 * column, y + 1 + 6 * row, 4, 4)
            for bit, (column, row) in enumerate(DOTS)
            if code >> bit & 1
        )
    if char in SHADES:
        return box(x, y, WIDE + SEAM, HIGH)
    if 0x2580 < code <= 0x2588:  # lower eighths
        return box(x, y + HIGH - (code - 0x2580) * 3, WIDE + SEAM, (code - 0x2580) * 3)
    if code in QUADRANTS:
        quarters = re.findall("(UPPER|LOWER) (LEFT|RIGHT)", unicodedata.name(char))
        return "".join(
            box(x + 6 * (side == "RIGHT"), y + 12 * (level == "LOWER"), 6, 12) for level, side in quarters
        )
    if code in LINES:
        name = unicodedata.name(char)
        if "DASH" in name:
            return box(x + 1, y + 11, 4, 2) + box(x + 7, y + 11, 4, 2)
        name = name.replace("HORIZONTAL", "LEFT RIGHT").replace("VERTICAL", "UP DOWN")
        thick = 4 if "HEAVY" in name else 2
        left, top = x + 6 - thick // 2, y + 12 - thick // 2
        sides = {
            "UP": box(left, y, thick, 12 + thick // 2),
            "DOWN": box(left, top, thick, 12 + thick // 2 + SEAM),
            "LEFT": box(x, top, 6 + thick // 2, thick),
            "RIGHT": box(left, top, 6 + thick // 2, thick),
        }
        return "".join(path for side, path in sides.items() if side in name.split())
    return ""


def box(x: float, y: float, wide: float, high: float) -> str:
    return f"M{x:g} {y:g}h{wide:g}v{high:g}h-{wide:g}z"
