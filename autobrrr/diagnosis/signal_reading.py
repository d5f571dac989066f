"""What one signal makes of the measurements: what it says alone, what it excludes, how firmly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from autobrrr.diagnosis import thresholds
from autobrrr.records import Evidence, Regime

STEP: Final = "share of step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One signal's answer.

    `abstained` says that the signal has nothing to go by, or that a guard of its own stopped
    it; then it speaks neither for nor against anything, and the note says why.
    """

    signal: str
    value: float | None
    unit: str
    note: str
    detail: str = ""  # the note without the state that it begins with
    says: Regime | None = None
    against: tuple[Regime, ...] = ()
    abstained: bool = False
    firm: bool = False  # enough samples, clear of its limit: may carry high confidence

    @property
    def told(self) -> str:
        """Its name and what it says, in a sentence about it."""
        return f"{self.signal.replace('_', ' ')}: {self.detail or self.note}"

    def evidence(self) -> Evidence:
        """The reading as it leaves the program."""
        return Evidence(
            signal=self.signal,
            says=self.says,
            value=None if self.value is None else round(self.value, 4),
            unit=self.unit,
            note=self.note,
            against=list(self.against),
        )


def abstention(signal: str, unit: str, why: str, value: float | None = None) -> Reading:
    """A reading that says nothing. A value is passed on where there is one to look at."""
    return Reading(
        signal=signal, value=value, unit=unit, note=f"not available: {why}", detail=why, abstained=True
    )


def weighed(
    signal: str, unit: str, regime: Regime, share: float, note: str, *, firm: bool, excludes: bool = True
) -> Reading:
    """Speaks for a regime at half of the step and, where it excludes, against it at a quarter."""
    says = regime if share >= thresholds.NAMED_AT else None
    against: tuple[Regime, ...] = (regime,) if excludes and share <= thresholds.EXCLUDED_AT else ()
    return Reading(signal=signal, value=share, unit=unit, note=note, says=says, against=against, firm=firm)


def contradicted(speaker: Reading, denier: Reading) -> str:
    """Two signals that can't both be right, in a sentence."""
    said = f"{speaker.signal} says {speaker.says} ({speaker.note})"
    return f"{said}, {denier.signal} excludes it ({denier.note})"


def unconfirmed(seconds: Iterable[Reading]) -> str:
    """What the signals say that could confirm the leading part."""
    return f"no second signal confirms the regime ({'; '.join(one.told for one in seconds)})"
