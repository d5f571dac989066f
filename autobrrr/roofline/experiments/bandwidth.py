"""Bytes per second to and from memory: copy (2 bytes moved a byte) and triad a = b + 3 c (3)."""

from __future__ import annotations

import msgspec
import torch

from autobrrr.roofline.roofline_bench import RooflineBench
from autobrrr.roofline.roofline_records import Roofline


def measure(bench: RooflineBench, so_far: Roofline) -> Roofline:
    count = bench.large_elements
    a, b, c = (torch.ones(count, device=bench.device) for _ in range(3))
    copied = 2 * 4 * count / bench.best_ns(lambda: a.copy_(b)) * 1e9
    triad = 3 * 4 * count / bench.best_ns(lambda: torch.add(b, c, alpha=3.0, out=a)) * 1e9
    return msgspec.structs.replace(
        so_far, copy_bytes_per_s=copied, triad_bytes_per_s=triad, array_bytes=4 * count
    )
