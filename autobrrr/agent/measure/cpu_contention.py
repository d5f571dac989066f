"""How long a thread ran, and how long it waited for a CPU, by the scheduler's clock."""

from __future__ import annotations

from pathlib import Path


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
