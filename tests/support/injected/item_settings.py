"""Settings of a training script's own, in a module, as many scripts keep them."""

from __future__ import annotations

scale = 1.0
table = {"scale": 1.0}


def scaled(number: float) -> float:
    """By what the module has as it is called."""
    return number * scale
