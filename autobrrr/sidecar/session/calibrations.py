"""What this machine could do, for the judge: peaks at the job's number of threads, a page fault's cost.

Peaks are read from the cache, never measured here: a sidecar runs beside training. `diagnose` measures
them before it attaches, so the cache is asked again until it has them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autobrrr.machine.processors import fault_cost_ns, multiplies_bf16
from autobrrr.machine.procfs import PROC
from autobrrr.roofline.quick_peaks import MeasuredPeaks, quick_peaks

PeaksOf = Callable[[int, str | None, Path], MeasuredPeaks | None]


def _kept(threads: int, torch: str | None, cache: Path) -> MeasuredPeaks | None:
    """What was measured with the job's torch, else with our own."""
    found = None if torch is None else quick_peaks(threads, cache, measure=False, version=torch)
    return found or quick_peaks(threads, cache, measure=False)


class Calibrations:
    """Looks things up once each.

    Args:
        cache: `paths.cache_dir()`.
        peaks_of: Cached peaks at a number of threads, of a torch.
        fault_ns: Measures the cost of a page fault.
        proc: Where `/proc` lies.
    """

    def __init__(
        self,
        cache: Path,
        peaks_of: PeaksOf = _kept,
        fault_ns: Callable[[], float | None] = fault_cost_ns,
        proc: Path = PROC,
    ) -> None:
        self._cache, self._peaks_of = cache, peaks_of
        self._peaks: MeasuredPeaks | None = None
        self.fault_ns = fault_ns()
        self.bf16 = multiplies_bf16(proc)

    def peaks(self, threads: int | None, torch: str | None) -> MeasuredPeaks | None:
        """Peaks of the job's torch at so many threads, once the cache has them; better ones later."""
        if threads is None or threads < 1:
            return None
        known = self._peaks
        if known is None or known.threads != threads or known.is_disturbed:
            known = self._peaks = self._peaks_of(threads, torch, self._cache)
        return known
