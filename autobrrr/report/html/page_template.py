"""The template of all pages: one style sheet, one frame, every value escaped, nothing from the network.

In: a page of the model. Out: HTML that stands alone. Its policy
(Content-Security-Policy) allows only the scripts of this package, by their hashes: what a job, a trace or a
log brings can't run, even where an escape were forgotten.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources
from itertools import groupby

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from autobrrr import __version__
from autobrrr.quantities import joined, share
from autobrrr.readable import readable, readable_lines
from autobrrr.records import to_json
from autobrrr.records.gain_words import factor_words
from autobrrr.report.page_model import Chart, LogScale, ReportPage, Section, Series, around
from autobrrr.report.palette import COLOURS

_PARTS = re.compile(r"(::|_|/)(?=\w)")
BRIGHT = {
    "bg": ("#f6f6f4", "#121316"),
    "card": ("#ffffff", "#1b1d21"),
    "ink": ("#1b1c1f", "#e8e9eb"),
    "muted": ("#5f646c", "#a0a6af"),
    "line": ("#e0e0dc", "#30333a"),
    "host_event": ("#eeeeea", "#26292f"),
    "accent": ("#2c5fb3", "#7ba6f2"),
    "better": ("#1f7a3a", "#58c576"),
    "worse": ("#b83232", "#f27878"),
    "arrow": ("#3c404848", "#d2d6de40"),
}


# What the page's own script draws brings its script and its style.
SCRIPTS = {"timeline": ("trace_timeline.js",), "steps": ("uplot/uPlot.iife.min.js", "step_chart.js")}
STYLES = {"timeline": (), "steps": ("uplot/uPlot.min.css",)}


def page_html(page: ReportPage) -> str:
    """The page; what it was made of can be saved from it as JSON."""
    shapes = list(dict.fromkeys(each.shape for each in page.drawings()))
    scripts = [asset(name) for name in ("page.js", *(name for shape in shapes for name in SCRIPTS[shape]))]
    styles = [asset(name) for name in (*(name for shape in shapes for name in STYLES[shape]), "page.css")]
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            data=inline_json(to_json(page.data)),
            style=Markup("".join((_colours(), *styles))),
            scripts=[Markup(script) for script in scripts],
            hashes=[b64encode(sha256(script.encode()).digest()).decode() for script in scripts],
            version=__version__,
        )
    )


def inline_json(text: str) -> Markup:
    """JSON that may stand inside a script element: no `<`, so nothing ends the element.

    What steers a text (it stands in strings alone) is shown as its escape.
    """
    steering = {each for each in set(text) if not each.isprintable()} - {"\n"}
    escaped = {ord(each): readable(each).replace("\\", "\\\\") for each in steering}
    return Markup(text.translate(escaped | {ord("<"): "\\u003c"}))


@cache
def asset(name: str) -> str:
    """The text of a file of this folder; a script of others brings its licence."""
    text = resources.files("autobrrr.report.html").joinpath(name).read_text(encoding="utf-8")
    folder, _, file = name.rpartition("/")
    return f"/*!\n{asset(f'{folder}/LICENSE')}*/\n{text}" if folder and file.endswith(".js") else text


@cache
def _environment() -> Environment:
    found = Environment(
        loader=FunctionLoader(lambda name: asset(f"templates/{name}")),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.tests["part"] = lambda part, kind: type(part).__name__ == kind
    found.filters.update(
        share=share,
        factor=factor_words,
        breakable=_breakable,
        inline=inline_json,
        picture=picture,
        runs=_runs,
    )
    return found


def _runs(sections: Sequence[Section]) -> list[tuple[bool, list[Section]]]:
    """Sections that stand beside each other, and those that don't."""
    return [(beside, list(group)) for beside, group in groupby(sections, key=lambda each: each.beside)]


def _shown(value: object) -> object:
    """Text as it may stand on a page, whoever made it; what is markup already is ours."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return joined(readable_lines(value))


def _breakable(text: str) -> Markup:
    """Text whose long names break where a reader expects it: behind `::`, `_` and `/`."""
    return Markup(_PARTS.sub(r"\g<0><wbr>", str(escape(_shown(text)))))


@cache
def _colours() -> str:
    table = {name: (hue.light, hue.dark) for name, hue in COLOURS.items()} | BRIGHT
    light, dark = ("".join(f"--{name}:{pair[i]};" for name, pair in table.items()) for i in (0, 1))
    return (
        f":root{{color-scheme:light;{light}}}"
        f"@media (prefers-color-scheme: dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}"
        f"@media print{{:root:root{{color-scheme:light;{light}}}}}\n"
    )


LETTER, LEAST_APART = 3.0, 9.0  # percent of the narrowest picture: of a letter, between two ticks
LABEL_HEIGHT = 14.0  # pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A chart with its axes; every place is in percent of its width or height, so it fits any window."""

    chart: Chart
    up: LogScale
    across: LogScale | None  # None: named places

    def x(self, value: float) -> float:
        places = len(self.chart.places or ())
        return 100 * ((value + 0.5) / max(1, places) if self.across is None else self.across.share(value))

    def y(self, value: float) -> float:
        return 100 - 100 * self.up.within(value)

    def ticks_up(self) -> Sequence[float]:
        return self.chart.up_ticks if self.chart.up_ticks is not None else self.up.marks()

    def ticks_across(self) -> list[tuple[float, str]]:
        """As many as can be read beside each other."""
        if self.across is None:
            named = [(self.x(i), name) for i, name in enumerate(self.chart.places or ())]
        else:
            named = [(self.x(value), f"{value:g}") for value in self.across.marks()]
        kept: list[tuple[float, str]] = []
        for at, label in named:
            room = LETTER * (len(label) + len(kept[-1][1])) / 2 + LETTER if kept else 0.0
            if not kept or at - kept[-1][0] >= max(LEAST_APART, room):
                kept.append((at, label))
        return kept

    def uprights(self) -> list[tuple[float, str]]:
        found = [(self.x(value), label) for value, label in self.chart.uprights]
        return [(at, label) for at, label in found if 0 <= at <= 100]

    def labels(self) -> list[tuple[float, Series]]:
        """The labels at the ends of lines; those that would lie on each other move down, or all up."""
        room = 100 * LABEL_HEIGHT / self.chart.height
        found = [(self.y(line.points[-1].y), line) for line in self.chart.lines if line.label and line.points]
        found.sort(key=lambda each: each[0])
        for at in range(1, len(found)):
            found[at] = (max(found[at][0], found[at - 1][0] + room), found[at][1])
        for at in range(len(found) - 1, -1, -1):
            limit = 100.0 if at == len(found) - 1 else found[at + 1][0] - room
            found[at] = (min(found[at][0], limit), found[at][1])
        return found


def picture(chart: Chart) -> Picture:
    """At least one series with at least one point, all above nothing.

    Raises:
        ValueError: a value has no logarithm.
    """
    points = [point for line in chart.lines for point in line.points]
    ends = [bound for point in points for bound in (point.interval or ()) if bound > 0]
    return Picture(
        chart=chart,
        up=chart.up or around([*(point.y for point in points), *ends]),
        across=around((point.x for point in points), 1.0001) if chart.places is None else None,
    )
