"""Foreign text (names of scripts, kernels, files) as text that is safe to show and to write.

What would steer a terminal, break a line or not be encoded becomes a mark of one cell.
"""

from __future__ import annotations

MARK = "\ufffd"


def readable(text: str) -> str:
    """The text without control characters, line breaks and halves of codes; odd spaces become plain ones."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else " " if each.isspace() and each > "\x1f" else MARK for each in text
    )
