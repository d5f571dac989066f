"""Signal `nvml`: what the GPU's driver shows from outside. It names nothing.

GPU-Util says that some kernel ran, not how much of the device it filled. What counts here is what makes
other figures wrong or slow: a clock that is held down, another process on the same device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.robust_stats import median, of_one, unit_share
from autobrrr.diagnosis.signal_reading import Reading, abstention
from autobrrr.records import GpuSample

NAME = "nvml"
UNIT = "share of wall time"
OFTEN = 0.25  # of the samples: a reason that comes less often is left out
COUNTERS = (
    ("sm_active_share", "SMs at work"),
    ("tensor_active_share", "tensor cores"),
    ("dram_active_share", "memory bandwidth"),
)


def nvml(measured: Measurements) -> Reading:
    """Medians of the last ten seconds, with what disturbs the device."""
    samples = measured.gpu
    if not samples:
        return abstention(NAME, UNIT, "no driver of a GPU that this job uses gave a figure")
    util = _median(samples, "gpu_util_share")
    words = [] if util is None else [f"GPU-Util {of_one(util)}, which says only that some kernel ran"]
    words += [
        f"{of_one(share)} {said}" for name, said in COUNTERS if (share := _median(samples, name)) is not None
    ]
    words += [*_held_down(samples), *_shared(samples[-1])]
    if not words:
        return abstention(NAME, UNIT, "the GPU's driver tells nothing of its work")
    return Reading(signal=NAME, value=util, unit=UNIT, note="; ".join(words))


def _held_down(samples: Sequence[GpuSample]) -> list[str]:
    reasons = Counter(reason for sample in samples for reason in set(sample.throttled_by or ()))
    often = [(reason, count) for reason, count in reasons.most_common() if count >= OFTEN * len(samples)]
    if not often:
        return []
    listed = ", ".join(f"{reason} in {of_one(count / len(samples))} of the looks" for reason, count in often)
    last = samples[-1]
    clock = ""
    if last.sm_clock_mhz is not None and last.sm_clock_max_mhz:
        clock = f", now at {last.sm_clock_mhz} of {last.sm_clock_max_mhz} MHz"
    return [f"its clock is held down ({listed}{clock})"]


def _shared(last: GpuSample) -> list[str]:
    others = last.other_processes or 0
    if others < 1:
        return []
    return [f"{others} other process{'es' * (others > 1)} compute{'s' * (others == 1)} on it"]


def _median(samples: Sequence[GpuSample], name: str) -> float | None:
    known = [share for sample in samples if (share := unit_share(getattr(sample, name))) is not None]
    return median(known)
