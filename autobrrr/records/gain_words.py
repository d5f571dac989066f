"""How a gain is written, everywhere: `1.56x [1.52–1.60]`, and what a remedy does to the results."""

from __future__ import annotations

from collections.abc import Sequence

NOT_MEASURED = "-"
SURE = "98 % interval"  # what stands in brackets behind a gain, everywhere
CLASS_WORDS = {  # of each class; what changes least first
    "bitwise": "results stay the same, bit for bit",
    "rounding": "results stay the same up to rounding",
    "stream": "other random numbers are drawn",
    "changes-training": "what is trained changes",
}


def factor_words(factor: float | None) -> str:
    """`1.56x`; one or two digits more where fewer would print a gain or a loss as none."""
    return NOT_MEASURED if factor is None else f"{_digits(factor)}x"


def interval_words(interval: Sequence[float] | None) -> str:
    """`[1.52–1.60]`, of factors."""
    return NOT_MEASURED if interval is None else f"[{_digits(interval[0])}–{_digits(interval[1])}]"


def gain_words(factor: float | None, interval: Sequence[float] | None = None) -> str:
    """A factor on speed with its interval, where it has one."""
    said = factor_words(factor)
    return said if factor is None or interval is None else f"{said} {interval_words(interval)}"


def _digits(factor: float) -> str:
    """At least two behind the point, at most four: what is not 1 should not read as 1."""
    for digits in (2, 3, 4):
        said = f"{factor:.{digits}f}"
        if float(said) != 1 or factor == 1:
            return said
    return f"{factor:.2f}"
