"""The table of experiments, in the order in which they are made; one file each.

An experiment takes the bench and what is known so far, and returns it with its own fields filled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autobrrr.roofline.experiments import (
    activations,
    bandwidth,
    cosine_fusion,
    flame,
    launch_cost,
    matmul_sizes,
    multiply_add,
    python_adds,
    repeat_sweep,
    torch_ops,
)
from autobrrr.roofline.roofline_bench import RooflineBench
from autobrrr.roofline.roofline_records import Roofline


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One entry of the table."""

    name: str
    title: str
    fields: tuple[str, ...]  # of `Roofline`, that it fills
    expected_s: float  # with a warm compile cache, for the progress bar
    measure: Callable[[RooflineBench, Roofline], Roofline]
    on_request: bool = False


EXPERIMENTS = (
    Experiment(name="python_adds", title="additions in Python",
        fields=("python_adds_per_s",), expected_s=0.1, measure=python_adds.measure),
    Experiment(name="torch_ops", title="additions of one-element tensors",
        fields=("torch_ops_per_s",), expected_s=0.3, measure=torch_ops.measure),
    Experiment(name="launches", title="kernel launches",
        fields=("launch",), expected_s=0.3, measure=launch_cost.measure),
    Experiment(name="bandwidth", title="copy and triad",
        fields=("copy_bytes_per_s", "triad_bytes_per_s", "array_bytes"), expected_s=1.0,
        measure=bandwidth.measure),
    Experiment(name="matmul_sizes", title="square matmuls",
        fields=("matmul",), expected_s=3.0, measure=matmul_sizes.measure),
    Experiment(name="repeat_sweep", title="x * 2, repeated and fused",
        fields=("sweep",), expected_s=8.0, measure=repeat_sweep.measure),
    Experiment(name="multiply_add", title="vector units with and without multiply-add",
        fields=("multiply_add",), expected_s=2.0, measure=multiply_add.measure),
    Experiment(name="cosine_fusion", title="x.cos().cos(), fused and not",
        fields=("fusion",), expected_s=2.0, measure=cosine_fusion.measure),
    Experiment(name="activations", title="gelu against relu",
        fields=("activations",), expected_s=1.5, measure=activations.measure),
    Experiment(name="flame", title="one addition, taken apart",
        fields=("flame",), expected_s=1.0, measure=flame.measure, on_request=True),
)  # fmt: skip
