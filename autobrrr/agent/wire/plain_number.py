"""Whole numbers in the texts of the kernel and of the environment, by their plain digits.

`int` and `str.isdigit` also take "²", "٣", "+5" or "1_000". What `machine.kernel_text` is outside the job.
"""

from __future__ import annotations

_MOST_DIGITS = 20


def whole_number(text: str | None) -> int | None:
    """The number that a text is, none below 0; None where it is none, or longer than any of the kernel's."""
    digits = "" if text is None else text.strip(" \t\n")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS else None
