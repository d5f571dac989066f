"""Spec-sheet peaks of GPUs, found by the name that a trace gives: dense, without sparsity.

FLOP/s with tensor or matrix cores at 16 bit and at fp32 input (TF32; fp32 where there is none),
FLOP/s of the vector units at fp32, and memory bandwidth. From the makers' data sheets.
"""

from __future__ import annotations

import re

from msgspec import Struct


class SpecPeaks(Struct, frozen=True, kw_only=True):
    half_flops: float
    tf32_flops: float
    fp32_flops: float
    bytes_per_s: float


def _peaks(half: float, tf32: float, fp32: float, tb_per_s: float) -> SpecPeaks:
    return SpecPeaks(
        half_flops=half * 1e12, tf32_flops=tf32 * 1e12, fp32_flops=fp32 * 1e12, bytes_per_s=tb_per_s * 1e12
    )


# In order: the first pattern that fits decides.
_TABLE: tuple[tuple[str, SpecPeaks], ...] = (
    (r"B300", _peaks(2500, 1250, 77, 8.0)),
    (r"B200|GB200", _peaks(2250, 1125, 75, 8.0)),
    (r"B100", _peaks(1750, 875, 60, 8.0)),
    (r"GH200|H200", _peaks(989, 495, 67, 4.8)),
    (r"H100.*NVL", _peaks(835, 417, 60, 3.9)),
    (r"H100.*PCIe", _peaks(756, 378, 51, 2.0)),
    (r"H100|H800", _peaks(989, 495, 67, 3.35)),
    (r"H20\b", _peaks(148, 74, 44, 4.0)),
    (r"A100.*80GB.*PCIe", _peaks(312, 156, 19.5, 1.935)),
    (r"A100.*80GB|A100-SXM4-80GB|A800", _peaks(312, 156, 19.5, 2.039)),
    (r"A100|A100-PG509", _peaks(312, 156, 19.5, 1.555)),
    (r"\bA30\b", _peaks(165, 82, 10.3, 0.933)),
    (r"\bA10G?\b", _peaks(125, 62, 31.2, 0.6)),
    (r"\bA40\b|A6000", _peaks(150, 75, 37.4, 0.696)),
    (r"\bL40S\b", _peaks(362, 183, 91.6, 0.864)),
    (r"\bL40\b", _peaks(181, 90.5, 90.5, 0.864)),
    (r"\bL4\b", _peaks(121, 60, 30.3, 0.3)),
    (r"6000 Ada", _peaks(364, 182, 91.1, 0.96)),
    (r"V100", _peaks(125, 15.7, 15.7, 0.9)),
    (r"\bT4\b", _peaks(65, 8.1, 8.1, 0.32)),
    (r"GP100|P100", _peaks(21.2, 10.6, 10.6, 0.732)),
    (r"P5000", _peaks(8.9, 8.9, 8.9, 0.288)),
    (r"RTX 5090", _peaks(210, 105, 105, 1.79)),
    (r"RTX 4090", _peaks(165, 82.6, 82.6, 1.008)),
    (r"RTX 4080", _peaks(97, 48.7, 48.7, 0.717)),
    (r"RTX 4060", _peaks(30, 15.1, 15.1, 0.272)),
    (r"RTX 3090", _peaks(71, 35.6, 35.6, 0.936)),
    (r"RTX 3080", _peaks(59, 29.8, 29.8, 0.76)),
    (r"2080 Ti", _peaks(53.8, 13.4, 13.4, 0.616)),
    (r"GTX 1650", _peaks(6.0, 3.0, 3.0, 0.128)),
    (r"MI355", _peaks(2500, 157, 157, 8.0)),
    (r"MI350", _peaks(2300, 144, 144, 8.0)),
    (r"MI325", _peaks(1307, 654, 163, 6.0)),
    (r"MI300X|MI308|MI300", _peaks(1307, 654, 163, 5.3)),
    (r"MI250X", _peaks(383, 95.7, 47.9, 3.28)),
    (r"MI250", _peaks(362, 90.5, 45.3, 3.28)),
    (r"MI210", _peaks(181, 45.3, 22.6, 1.64)),
    (r"MI100", _peaks(185, 46.1, 23.1, 1.23)),
)


def peaks_of(name: str | None) -> SpecPeaks | None:
    """The peaks of a device; None where it is not in the table."""
    if not name:
        return None
    return next((peaks for pattern, peaks in _TABLE if re.search(pattern, name, re.IGNORECASE)), None)
