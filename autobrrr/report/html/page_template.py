"""The template of all pages: one style sheet, one frame, every value escaped, nothing from the network.

In: a page of the model. Out: HTML that stands alone. Its policy
(Content-Security-Policy) allows only the scripts of this package, by their hashes: what a job, a trace or a
log brings can't run, even where an escape were forgotten.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from itertools import groupby

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from autobrrr import __version__
from autobrrr.quantities import joined, share
from autobrrr.readable import readable, readable_lines
from autobrrr.records import to_json
from autobrrr.records.gain_words import factor_words
from autobrrr.records.palette import COLOURS
from autobrrr.report.html.chart_places import pictures
from autobrrr.report.page_model import ReportPage, Section

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
            hashes=[_hash(script) for script in scripts],
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
    found.filters.update(
        share=share,
        factor=factor_words,
        breakable=_breakable,
        inline=inline_json,
        pictures=pictures,
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


@cache
def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
