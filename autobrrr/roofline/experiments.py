"""The table of experiments, in the order in which they are made.

An experiment takes the bench and returns the fields of `Roofline` that it has found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autobrrr.roofline import fused_passes, one_addition, plain_rates
from autobrrr.roofline.roofline_bench import Fields, RooflineBench


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One entry of the table."""

    name: str
    title: str
    measure: Callable[[RooflineBench], Fields]
    expected_s: float  # with a warm compile cache, for the progress bar
    on_request: bool = False


EXPERIMENTS = tuple(
    Experiment(name=name, title=title, measure=measure, expected_s=expected_s, on_request=name == "flame")
    for name, title, measure, expected_s in (
        ("python_adds", "additions in Python", plain_rates.python_adds, 0.1),
        ("torch_ops", "additions of one-element tensors", plain_rates.torch_ops, 0.3),
        ("launches", "kernel launches", plain_rates.launches, 0.3),
        ("bandwidth", "copy and triad", plain_rates.bandwidth, 1.0),
        ("matmul_sizes", "square matmuls", plain_rates.matmul_sizes, 3.0),
        ("repeat_sweep", "x * 2, repeated and fused", fused_passes.repeat_sweep, 8.0),
        ("multiply_add", "vector units with and without multiply-add", fused_passes.multiply_add, 2.0),
        ("cosine_fusion", "x.cos().cos(), fused and not", fused_passes.cosine_fusion, 2.0),
        ("activations", "gelu against relu", fused_passes.activations, 1.5),
        ("flame", "one addition, taken apart", one_addition.flame, 1.0),
    )
)
