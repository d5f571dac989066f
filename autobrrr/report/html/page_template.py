"""The template of all pages: one style sheet, one frame, every value escaped, nothing from the network.

In: the name of a template beside this file and what it shows. Out: a page that stands alone. Its policy
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

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from autobrrr import __version__
from autobrrr.quantities import duration, joined, share
from autobrrr.readable import readable, readable_lines
from autobrrr.records import Record, to_json
from autobrrr.records.gain_words import factor_words, gain_words, interval_words
from autobrrr.records.palette import COLOURS

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


def render(
    name: str, *, data: Record, scripts: Sequence[str] = (), styles: Sequence[str] = (), **values: object
) -> str:
    """A page.

    Args:
        name: Of the template, without its folder and ending.
        data: What the page was made of; it can be saved from the page as JSON.
        scripts: Files of this folder that the page runs, beside those of every page.
        styles: The same for style sheets.
        values: What the template shows.
    """
    sources = [asset(script) for script in ("page.js", *scripts)]
    return (
        _environment()
        .get_template(f"{name}.html")
        .render(
            values,
            data=inline_json(to_json(data)),
            style=Markup("".join((_colours(), *map(asset, (*styles, "page.css"))))),
            scripts=[Markup(source) for source in sources],
            hashes=[_hash(source) for source in sources],
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
    words = {
        "duration": duration,
        "share": share,
        "factor": factor_words,
        "gain": gain_words,
        "interval": interval_words,
    }
    found.filters.update(words | {"breakable": _breakable})
    return found


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
