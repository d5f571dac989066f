"""What a part of the step is called in a sentence."""

from __future__ import annotations

from typing import Final

WORDS: Final[dict[str, str]] = {
    "overhead": "Python and dispatch",
    "input": "waiting for data",
    "host": "code between the phases",
    "communication": "waiting for other ranks",
    "compute": "matrix products",
    "memory": "kernels that move tensors",
    "underfilled": "kernels far below both roofs",
    "other": "not measured",
}
