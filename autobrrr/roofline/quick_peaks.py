"""Peaks of this machine within a second and a half: one matmul size and one triad, kept on disk.

`diagnose` asks for them before it attaches, with the job's number of threads and its interpreter.
Comes out: a `MeasuredPeaks`, or None where they can't be measured.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from autobrrr.records import Record
from autobrrr.roofline.calibration_cache import cached_file, keep, known
from autobrrr.roofline.machine_identity import Machine, read_machine, torch_version
from autobrrr.roofline.roofline_records import DISTURBED_AT, MatmulPoint, Roofline

CHILD = Path(__file__).with_name("quick_child.py")
BUDGET_S = 0.08  # for the matmul, and again for the triad: importing torch takes most of a second
PATIENCE_S = 20.0  # a cold disk may take long to give torch
LEAST_TRIAD_BYTES, MOST_TRIAD_BYTES = 96 << 20, 384 << 20  # all three arrays


class MeasuredPeaks(Record, frozen=True, kw_only=True):
    """What this many threads reach here at best, in fp32, measured."""

    threads: int
    torch: str
    matmul_n: int
    matmul_flops: float  # FLOP/s of a square matmul of this n
    triad_bytes_per_s: float  # a = b + 3 c, three arrays, larger than the last cache
    measured_at_unix_s: float
    curve: list[MatmulPoint] = []  # by rising n; empty until `roofline` has run here
    waited_share: float | None = None  # of the time that the threads wanted a core and had none
    matmul_flops_of_one: float | None = None  # of one thread by itself, where all together were disturbed
    triad_bytes_per_s_of_one: float | None = None

    def doubt(self, name: Literal["matmul_flops", "triad_bytes_per_s"]) -> float:
        """By which part a peak may be higher: as its threads waited, not above what each reaches alone."""
        one: float | None = getattr(self, f"{name}_of_one")
        waited = min(1.0, max(0.0, self.waited_share or 0.0))
        return waited if not one else min(waited, max(0.0, 1 - getattr(self, name) / (self.threads * one)))

    @property
    def is_disturbed(self) -> bool:
        """Whether the machine was so busy that a peak may be higher."""
        return (self.waited_share or 0.0) > DISTURBED_AT

    def matmul_flops_at(self, m: int, n: int, k: int) -> float | None:
        """FLOP/s of the square matmul that does as much work as (m x k)(k x n); the peak without a curve.

        Interpolated on both logarithms, constant beyond the ends. What a skinny matmul stays below that is
        the price of its shape.
        """
        if min(m, n, k) <= 0:
            return None
        size = (float(m) * n * k) ** (1 / 3)
        above = bisect_left([point.n for point in self.curve], size)
        if above in (0, len(self.curve)):
            return self.curve[min(above, len(self.curve) - 1)].flops if self.curve else self.matmul_flops
        low, high = self.curve[above - 1], self.curve[above]
        along = math.log(size / low.n) / math.log(high.n / low.n)
        return math.exp((1 - along) * math.log(low.flops) + along * math.log(high.flops))


def quick_peaks(
    threads: int,
    cache: Path,
    python: str = sys.executable,
    measure: bool = True,
    *,
    version: str | None = None,
    site: str | None = None,
    machine: Machine | None = None,
    now_s: Callable[[], float] = time.time,
    patience_s: float = PATIENCE_S,
) -> MeasuredPeaks | None:
    """The peaks of this machine at a number of threads: from the cache, else measured now.

    Where `roofline` has run undisturbed, its figures and its curve are taken. What was measured on a busy
    machine is measured again; each figure only rises. None where that interpreter has no torch, or the
    measurement failed.

    Args:
        threads: Intra-op threads of the job.
        cache: `paths.cache_dir()`.
        python: The interpreter whose torch is measured; ours unless given.
        measure: Without it, only the cache is asked.
        version: Of the torch in that interpreter; by default, of ours.
        site: The folder in which it finds torch, where its own path does not lead there.
        machine: This machine unless given.
        now_s: The time of day.
        patience_s: A measurement that takes longer is given up.
    """
    torch = version or torch_version()
    if torch is None or threads < 1:
        return None
    machine = machine or read_machine()
    full_file, file = (
        cached_file(cache, kind, device=machine.title, torch=torch, threads=threads)
        for kind in ("full", "quick")
    )
    full = known(full_file, Roofline)
    if full is not None and not full.is_disturbed and (peaks := _of_full(full)) is not None:
        return peaks
    quick = known(file, MeasuredPeaks)
    if measure and (quick is None or quick.is_disturbed):
        found = _measure(threads, python, site, machine, now_s(), patience_s=patience_s)
        if found is not None:
            quick = _better(quick, found)
            keep(file, quick)
    return quick


def _of_full(full: Roofline) -> MeasuredPeaks | None:
    """The same two figures, and the curve, of what `roofline` measured."""
    curve = [MatmulPoint(n=each.n, flops=each.flops) for each in full.matmul if each.dtype == "float32"]
    if not curve or full.triad_bytes_per_s is None:
        return None
    best = max(curve, key=lambda point: point.flops)
    return MeasuredPeaks(
        threads=full.threads,
        torch=full.torch,
        matmul_n=best.n,
        matmul_flops=best.flops,
        triad_bytes_per_s=full.triad_bytes_per_s,
        measured_at_unix_s=full.measured_at_unix_s,
        curve=curve,
        waited_share=full.waited_share,
    )


def _better(known: MeasuredPeaks | None, found: MeasuredPeaks) -> MeasuredPeaks:
    if known is None:
        return found
    return msgspec.structs.replace(
        found,
        matmul_flops=max(known.matmul_flops, found.matmul_flops),
        triad_bytes_per_s=max(known.triad_bytes_per_s, found.triad_bytes_per_s),
        # No peak is lower than either.
        waited_share=min(known.waited_share or 0.0, found.waited_share or 0.0),
        matmul_flops_of_one=found.matmul_flops_of_one or known.matmul_flops_of_one,
        triad_bytes_per_s_of_one=found.triad_bytes_per_s_of_one or known.triad_bytes_per_s_of_one,
    )


def _measure(
    threads: int, python: str, site: str | None, machine: Machine, now_s: float, *, patience_s: float
) -> MeasuredPeaks | None:
    size = _matmul_n(threads)
    triad_bytes = 4 * machine.last_cache_bytes
    asked = {
        "threads": threads,
        "n": size,
        "triad_elements": min(max(triad_bytes, LEAST_TRIAD_BYTES), MOST_TRIAD_BYTES) // (3 * 4),
        "budget_s": BUDGET_S,
        "site": site,
    }
    isolated = [] if site is None else ["-I"]  # our own PYTHON… variables are not that interpreter's
    line = run_child([python, *isolated, str(CHILD), json.dumps(asked)], threads, patience_s)
    try:
        said = {**msgspec.json.decode(line), "matmul_n": size, "measured_at_unix_s": now_s}
        found = msgspec.convert(said, MeasuredPeaks)
    except (TypeError, msgspec.MsgspecError):  # no JSON, or no mapping
        return None
    return found if found.threads == threads else None


def run_child(words: Sequence[str], threads: int, patience_s: float) -> bytes:
    """The last line that a measuring process with so many threads prints; empty where it failed.

    Before it may come what a `.pth` file of the environment prints.
    """
    given_away = ("MKL_NUM_THREADS", "MKL_DYNAMIC", "OMP_DYNAMIC", "PYTHONSTARTUP")
    kept = {name: value for name, value in os.environ.items() if name not in given_away}
    try:
        done = subprocess.run(
            words,
            env={**kept, "OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # without a terminal
            timeout=patience_s,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return b""
    return done.stdout.rstrip().rpartition(b"\n")[2]


def _matmul_n(threads: int) -> int:
    """Large enough for the peak, yet milliseconds a run: among many, one is undisturbed."""
    return 512 if threads <= 2 else 1024 if threads <= 16 else 2048
