"""The one table of colours: for all that is drawn, readable on both grounds, never green or red."""

from __future__ import annotations

import colorsys

import pytest

from autobrrr.records import Phases, Shares
from autobrrr.report.palette import COLOURS, Hue
from autobrrr.trace.causes.host_causes import CAUSES
from autobrrr.trace.kernels.kernel_classes import CLASSES

GROUNDS = {"light": "#ffffff", "dark": "#1b1d21"}


def parts(colour: str) -> tuple[float, float, float]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))  # type: ignore[return-value]


def luminance(colour: str) -> float:
    """WCAG 2's relative luminance."""
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts(colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_share_phase_cause_and_class_has_its_colour() -> None:
    drawn = {*Shares.__struct_fields__, *Phases.__struct_fields__, *CAUSES, *CLASSES}
    assert drawn - set(COLOURS) == set()


@pytest.mark.parametrize("name", list(COLOURS))
def test_a_colour_is_seen_on_its_ground_and_is_neither_green_nor_red(name: str) -> None:
    hue: Hue = COLOURS[name]
    assert "green" not in hue.screen
    assert "red" not in hue.screen
    for ground, colour in (("light", hue.light), ("dark", hue.dark)):
        lighter, darker = sorted((luminance(colour), luminance(GROUNDS[ground])), reverse=True)
        if name not in ("in_launch", "after_launch", "unmatched"):  # pieces of gaps, with words in them
            assert (lighter + 0.05) / (darker + 0.05) >= 2.3, ground
        angle, _, strong = colorsys.rgb_to_hls(*parts(colour))
        if strong > 0.3:
            assert not 80 < 360 * angle < 165  # green
            assert 15 < 360 * angle < 345  # red
