"""Measures what is true of each case, by stopwatch and formula; nothing of the product takes part."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from benchmarks.planted.case import Case, Knob
from benchmarks.planted.ceilings import Ceilings, ceilings
from benchmarks.planted.job_process import CALM_MALLOC, NOTHING, end_descendants, timed
from benchmarks.planted.load import LoadMeter
from benchmarks.planted.truth import Timing, confirm_alone, confirm_shares, shares

FAULTS_WORTH_A_RUN = 64  # per step


class Confirmer:
    """Confirms cases one after another; roofs are measured once for each number of threads."""

    def __init__(self, environment: Mapping[str, str], seconds: float = 2.0) -> None:
        self._environment = environment
        self._seconds = seconds
        self._roofs: dict[tuple[int, str], Ceilings] = {}

    def confirm(self, case: Case) -> dict[str, Any]:
        """One row of the table of truths.

        Raises:
            JobFailed: the script gave no times.
        """
        meter = LoadMeter()
        full = self._timed(case)
        if case.alone is not None:
            alone = self._timed(case, over=case.alone)
            confirmation = confirm_alone(case, full, alone)
            row: dict[str, Any] = {"alone_step_ns": alone.step_ns}
        else:
            hollow = self._timed(case, "--hollow", over=_units(full))
            calm = None
            if full.minor_faults > FAULTS_WORTH_A_RUN:
                calm = timed(
                    case, {**self._environment, **CALM_MALLOC}, seconds=self._seconds, over=_units(full)
                )
            found = shares(full, hollow, calm, self._roof(case))
            confirmation = confirm_shares(case, found)
            row = {
                "hollow_step_ns": hollow.step_ns,
                "calm_step_ns": calm.step_ns if calm else None,
                "shares": {name: round(share, 3) for name, share in found.shares.items()},
                "roofs": asdict(self._roof(case)),
            }
        end_descendants()
        return {
            "case": case.name,
            "truth": case.truth,
            "holds": confirmation.holds,
            "figure": confirmation.figure,
            "full": asdict(full),
            **row,
            "load": asdict(meter.read()),
        }

    def _timed(self, case: Case, *words: str, over: Mapping[str, Knob] = NOTHING) -> Timing:
        return timed(case, self._environment, *words, seconds=self._seconds, over=over)

    def _roof(self, case: Case) -> Ceilings:
        key = (case.threads, case.device)
        if key not in self._roofs:
            self._roofs[key] = ceilings(*key)
        return self._roofs[key]


def settled_units(row: Mapping[str, Any]) -> dict[str, Knob]:
    """What a confirmed mixture settled on: the job that is diagnosed is then the same."""
    return _units(Timing(**row["full"])) if row.get("full") else {}


def _units(full: Timing) -> dict[str, Knob]:
    """What a mixture settled on when it started, so that its other runs are the same job."""
    return {name: int(value) for name, value in full.settled.items() if name.endswith("_units")}
