"""What a part of the step is called in a sentence, and the sentences that list some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from autobrrr.diagnosis.thresholds import LEAST_SHOWN
from autobrrr.quantities import share as of_one

WORDS: Final[Mapping[str, str]] = {
    "overhead": "Python and dispatch",
    "input": "waiting for data",
    "host": "code between the phases",
    "sync": "waits that the script asks for",
    "communication": "waiting for other ranks",
    "compute": "matrix products",
    "memory": "kernels that move tensors",
    "underfilled": "kernels far below both roofs",
    "other": "not measured",
}
WHO: Final[Mapping[str, str]] = {
    **WORDS,
    "host": "host",
    "kernels": "kernels",
    "short": "operators too short to tell their kernels from dispatch",
    "startup": "first launches, loading, graph capture and compilation",
    "shared": "waits while another process has the device",
}


def listed(parts: Iterable[tuple[float, str]]) -> str:
    """`76 % matrix products, 10 % kernels that move tensors`: of shares and words, the largest first."""
    shown = sorted(((share, words) for share, words in parts if share >= LEAST_SHOWN), reverse=True)
    return ", ".join(f"{of_one(share)} {words}" for share, words in shown)


def no_single(shares: Mapping[str, float]) -> str:
    """`No single bottleneck: host 57 %, kernels 43 %`; empty where no part is worth a word."""
    ranked = sorted(((share, name) for name, share in shares.items() if share >= LEAST_SHOWN), reverse=True)
    said = ", ".join(f"{WHO[name]} {of_one(share)}" for share, name in ranked)
    return f"No single bottleneck: {said}" if said else ""


def mixture(shares: Mapping[str, float]) -> str:
    """`no single part leads: 47 % matrix products, 21 % waiting for data`: of shares by regime."""
    return f"no single part leads: {listed((share, WORDS[name]) for name, share in shares.items())}"
