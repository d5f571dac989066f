"""The account of one training step, from the end of the step before to the end of its own update.

Filled by hooks, written as one line of JSON. What was not seen is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class StepAccount:
    """What one step held.

    Attributes:
        samples: By model: one step may call several.
        lengths: Of a sample's first dimension, summed over samples.
        rows: A digest of each sample.
        flops: By the kind of number that large products are made of; None: not counted in this step.
        places: Outputs of modules: path, place in the source, digest, norm.
    """

    backwards: int = 0
    optimizers: int = 0
    samples: dict[int, int] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    evaluated: int = 0
    rows: list[str] = field(default_factory=list)
    loss: float | None = None
    flops: dict[str, int] | None = None
    places: list[tuple[str, str, int, float | None]] = field(default_factory=list)

    def line(self) -> dict[str, object]:
        """As it is written."""
        return {
            "backwards": self.backwards,
            "optimizers": self.optimizers,
            "samples": max(self.samples.values(), default=None),
            "tokens": max(self.tokens.values(), default=None),
            "evaluated": self.evaluated,
            "rows": self.rows,
            "loss": self.loss,
            "flops": self.flops,
            "places": self.places,
        }
