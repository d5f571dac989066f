"""How many floating-point additions Python makes in a second, one after the other in a loop."""

from __future__ import annotations

import msgspec

from autobrrr.roofline.roofline_bench import RooflineBench
from autobrrr.roofline.roofline_records import Roofline

COUNT = 200_000


def measure(bench: RooflineBench, so_far: Roofline) -> Roofline:
    ns = bench.statement_ns("a + b", {"a": 1.5, "b": 2.5}, COUNT)
    return msgspec.structs.replace(so_far, python_adds_per_s=1e9 / ns)
