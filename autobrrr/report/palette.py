"""One table of colours for regimes, phases and what a trace shows: the screen and the pages take theirs here.

No colour here is green or red: those say better and worse, and nothing else. Neighbours differ in
lightness too, so that they can be told apart without seeing all colours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Hue:
    """One colour in three surroundings."""

    screen: str  # of a terminal's sixteen
    light: str  # on a light page, #rrggbb
    dark: str  # on a dark page


ORANGE = Hue(screen="yellow", light="#d9730d", dark="#f0933f")
PURPLE = Hue(screen="magenta", light="#7d5bc0", dark="#ab90ea")
GOLD = Hue(screen="bright_yellow", light="#b58a14", dark="#dcb94e")
PINK = Hue(screen="bright_magenta", light="#bf4f97", dark="#e585c2")
TEAL = Hue(screen="bright_cyan", light="#0f8a93", dark="#41bbc0")
BLUE = Hue(screen="blue", light="#2c5fb3", dark="#6394ec")
SKY = Hue(screen="cyan", light="#2f9fd6", dark="#7ccbf5")
BROWN = Hue(screen="white", light="#8f5f3c", dark="#c79570")
INDIGO = Hue(screen="bright_blue", light="#5a4fcf", dark="#9a93f3")
LILAC = Hue(screen="bright_magenta", light="#a97cc9", dark="#cba6e3")
STEEL = Hue(screen="bright_blue", light="#5f7fa6", dark="#93aed0")
SLATE = Hue(screen="bright_black", light="#75808e", dark="#8e98a6")
GREY = Hue(screen="bright_black", light="#a0a4aa", dark="#7b8088")

REGIMES: Mapping[str, Hue] = {
    "overhead": ORANGE,
    "input": PURPLE,
    "host": GOLD,
    "sync": PINK,
    "communication": TEAL,
    "memory": BLUE,
    "compute": SKY,
    "underfilled": BROWN,
    "other": GREY,
}
PHASES: Mapping[str, Hue] = {
    "data_wait": PURPLE,
    "host_to_device": TEAL,
    "forward": SKY,
    "backward": BLUE,
    "optimizer": BROWN,
    "other": GREY,
}
KERNELS: Mapping[str, Hue] = {
    "matmul": SKY,
    "conv": TEAL,
    "attention": INDIGO,
    "normalisation": BLUE,
    "pointwise": STEEL,
    "reduction": LILAC,
    "embedding": PURPLE,
    "fused": GOLD,
    "copy": SLATE,
}
IDLE_CAUSES: Mapping[str, Hue] = {
    "data_loader": PURPLE,
    "synchronisation": PINK,
    "allocation": BROWN,
    "op_dispatch": ORANGE,
    "python": GOLD,
    "initialisation": STEEL,
    "profiler": LILAC,
    "untraced": GREY,
    "in_launch": Hue(screen="yellow", light="#eec48b", dark="#a0753c"),
    "after_launch": Hue(screen="bright_cyan", light="#a3bfc4", dark="#55757b"),
    "unmatched": Hue(screen="bright_black", light="#d0d3d8", dark="#4b5058"),
}
COLOURS: Mapping[str, Hue] = {**IDLE_CAUSES, **KERNELS, **PHASES, **REGIMES}
