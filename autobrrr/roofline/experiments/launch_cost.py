"""What a kernel launch costs on a device of its own: queued among many, and waited for."""

from __future__ import annotations

import msgspec
import torch

from autobrrr.roofline.roofline_bench import RooflineBench
from autobrrr.roofline.roofline_records import LaunchCost, Roofline

COUNT = 2_000  # more would fill the device's queue, and the host would wait for its place


def measure(bench: RooflineBench, so_far: Roofline) -> Roofline:
    """On a CPU there is nothing to launch."""
    if bench.on_cpu:
        return so_far
    x = torch.ones(1, device=bench.device)
    queued = bench.statement_ns("x.zero_()", {"x": x}, COUNT)
    awaited = float(bench.best_ns(x.zero_))
    return msgspec.structs.replace(so_far, launch=LaunchCost(queued_ns=queued, awaited_ns=awaited))
