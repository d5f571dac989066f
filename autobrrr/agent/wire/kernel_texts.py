"""Numbers in the kernel's text files: plain digits, and how long a thread ran or waited for a CPU.

`int` and `str.isdigit` also take "²", "٣", "+5" or "1_000". What `machine.kernel_text` is outside the job.
"""

from __future__ import annotations

from pathlib import Path

_MOST_DIGITS = 20


def whole_number(text: str | None) -> int | None:
    """The number that a text is, none below 0; None where it is none, or longer than any of the kernel's."""
    digits = "" if text is None else text.strip(" \t\n")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS else None


def scheduled_ns(tid: int | None) -> tuple[int, int] | None:
    """How long a thread has run, and waited for a CPU, since it began; None where the kernel does not say."""
    try:
        ran, waited = Path(f"/proc/self/task/{tid}/schedstat").read_text(encoding="ascii").split()[:2]
    except (OSError, ValueError):
        return None
    return int(ran), int(waited)


def run_delay_ns(tid: int) -> int:
    """How long this thread has waited for a CPU since it began; -1: not known here."""
    known = scheduled_ns(tid)
    return -1 if known is None else known[1]
