"""Durations, shares and sizes as a person reads them; "-" where nothing was measured."""

from __future__ import annotations

import re

NOT_MEASURED = "-"
_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|[mun]?s\b)")
JOINED = "\u00a0"  # the space at which no line ends
_SIZES = ((1 << 40, "TB"), (1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))


def duration(ns: float | None) -> str:
    """Three digits and a unit: 1.42 ms."""
    if ns is None:
        return NOT_MEASURED
    for scale, unit in _TIMES:
        if abs(ns) >= scale:
            return f"{digits(ns / scale)} {unit}"
    return f"{ns:.0f} ns"


def duration_words(ns: int) -> str:
    """`42s`, `7m`, `3h12m`, `2d4h`."""
    minutes, seconds = divmod(ns // 1_000_000_000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours}h"
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m" if minutes else f"{seconds}s"


def clock(ns: float | None) -> str:
    """Time that passes: 0:42, 1:02:03."""
    if ns is None:
        return NOT_MEASURED
    minutes, seconds = divmod(int(ns / 1e9), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def share(part: float | None, places: int = 0) -> str:
    """A share in percent: 31 %; small ones with the digits that tell them from nothing."""
    if part is None:
        return NOT_MEASURED
    percent = 100 * part
    if 0 < abs(percent) < 0.01:
        return "<0.01 %"
    return f"{percent:.{2 if 0 < abs(percent) < 1 else places}f} %"


def joined(text: str) -> str:
    """The text with figures joined to their units: no line ends between them."""
    return _BEFORE_UNIT.sub(JOINED, text)


def whole_words(text: str) -> list[str]:
    """The words between which a line may end."""
    return [word.replace(JOINED, " ") for word in re.findall(r"(?:\S|\u00a0)+", joined(text))]


def size(count: float | None) -> str:
    """Bytes: 612 MB."""
    if count is None:
        return NOT_MEASURED
    for scale, unit in _SIZES:
        if abs(count) >= scale:
            return f"{digits(count / scale)} {unit}"
    return f"{count:.0f} B"


def digits(value: float) -> str:
    """Three of them."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
