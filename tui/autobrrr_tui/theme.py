"""Tones as styles of the terminal's own sixteen colours, on its own background.

So light, dark and colourless terminals are all served by what they are set to; `COLORFGBG`, where a
terminal tells it, decides between two tables that differ in what reads badly on white.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from rich.style import Style

from autobrrr.records.palette import COLOURS

ON_WHITE = {
    "yellow": "magenta",
    "bright_yellow": "bright_black",
    "bright_cyan": "cyan",
    "white": "black",
}
DARK: Mapping[str, str] = {
    "plain": "",
    "dim": "dim",
    "strong": "bold",
    "head": "bold cyan",
    "regime": "bold yellow",
    "good": "green",
    "bad": "bold red",
    "warn": "yellow",
    "accent": "cyan",
    "key": "bold blue",
    "off": "dim strike",
    "here": "bold reverse",
    **{name: hue.screen for name, hue in COLOURS.items()},
}
LIGHT: Mapping[str, str] = {
    **DARK,
    "head": "bold blue",
    "regime": "bold magenta",
    "warn": "magenta",
    "accent": "blue",
    **{name: ON_WHITE.get(hue.screen, hue.screen) for name, hue in COLOURS.items()},
}


def is_light(environ: Mapping[str, str]) -> bool:
    """Whether the terminal says that its background is light."""
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    return background in ("7", "15")


@cache
def styles(light: bool) -> dict[str, Style]:
    """A style for every tone."""
    return {tone: Style.parse(words) for tone, words in (LIGHT if light else DARK).items()}
