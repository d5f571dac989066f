"""How many additions of one-element tensors torch makes in a second: all of it is overhead."""

from __future__ import annotations

import msgspec
import torch

from autobrrr.roofline.roofline_bench import RooflineBench
from autobrrr.roofline.roofline_records import Roofline

COUNT = 20_000


def measure(bench: RooflineBench, so_far: Roofline) -> Roofline:
    names = {name: torch.ones(1, device=bench.device) for name in "ab"}
    ns = bench.statement_ns("a + b", names, COUNT)
    return msgspec.structs.replace(so_far, torch_ops_per_s=1e9 / ns)
