"""The first level of a verdict, in words: who limits the step, above the regime that says with what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from autobrrr.records.record_base import Confidence, Limit

LIMIT_OF_REGIME: Final[Mapping[str, Limit]] = {
    "overhead": "host",
    "host": "host",
    "input": "input",
    "sync": "sync",
    "communication": "communication",
    "memory": "kernels",
    "compute": "kernels",
    "underfilled": "kernels",
    "mixed": "mixed",
    "unknown": "unknown",
}
EXACT: Final = ("garbage", "recompilation")  # limits that need no second signal, on a busy machine neither
NAMES_NOBODY: Final = ("mixed", "unknown")
MOST: Final = 0.5  # of a step


def limit_name(limit: Limit, compute: float | None = None) -> str:
    """ "limited by kernels": who, without how sure. Products that take half of a step are "computation"."""
    if limit == "unknown":
        return "limit: unknown"
    if limit == "kernels" and (compute or 0.0) >= MOST:
        return "limited by computation"
    if limit == "garbage":
        return "limited by garbage collection"
    return "limited by several parts" if limit == "mixed" else f"limited by {limit}"


def limit_words(limit: Limit, confidence: Confidence, compute: float | None = None) -> str:
    """ "limited by kernels (high)": the head of every output."""
    if limit == "unknown":
        return limit_name(limit)
    return f"{limit_name(limit, compute)} ({'mixed' if limit == 'mixed' else confidence})"
