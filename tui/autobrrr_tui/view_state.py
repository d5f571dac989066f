"""What a screen knows of a session at one moment. Sources make it, panes read it, nobody changes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from autobrrr.records import Diagnosis, RankLine, Trial, TuneProgress, Tuning
from autobrrr.records.wire_answers import ActiveRemedy, Details
from autobrrr.report.text.verdict_text import MEASURING


class ScreenStanding(Enum):
    """How the screen stands to its session."""

    OPENING = "opening"
    LIVE = "live"
    LOST = "lost"  # the sidecar is gone; looking for another
    ENDED = "ended"
    RECORDED = "recorded"
    REFUSED = "refused"  # never got in


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A line of the log."""

    number: int  # from 1; it stays when older lines are dropped
    t_ns: int | None  # since attach
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened to the job, where a chart over time shows it."""

    t_ns: int  # since attach
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that is drawn."""

    pid: int | None = None
    standing: ScreenStanding = ScreenStanding.OPENING
    why: str = ""  # what stands behind OPENING, LOST, ENDED, REFUSED
    hint: str = ""
    readonly: bool = False
    snapshot: Diagnosis | None = None
    judged: Diagnosis | None = None  # the last snapshot that named something
    timed: Diagnosis | None = None  # the last one that knew how long a step takes
    details: Details | None = None
    progress: TuneProgress | None = None
    trials: tuple[Trial, ...] = ()
    tuned: Tuning | None = None
    failed: str = ""  # the last tuning ended without a result
    log: tuple[Said, ...] = field(default=())
    marks: tuple[Mark, ...] = ()
    log_path: str = ""
    silent_s: float = 0.0  # no step has ended for so long
    playing: bool = False  # more comes of a recording

    @property
    def ranks(self) -> Sequence[RankLine]:
        """Those of the job that are known; none for a job of one rank."""
        return (self.snapshot.ranks if self.snapshot is not None else None) or ()

    @property
    def active(self) -> Sequence[ActiveRemedy]:
        """The remedies that are on, the latest last."""
        return self.details.active if self.details is not None else ()

    @property
    def regime(self) -> str:
        """The word that stands on the first screen."""
        found = self.snapshot
        if found is None or (found.regime == "unknown" and found.state in MEASURING):
            return (
                "measuring" if self.standing in (ScreenStanding.OPENING, ScreenStanding.LIVE) else "unknown"
            )
        return found.regime

    @property
    def over(self) -> bool:
        """Whether no session comes any more."""
        return self.standing in (ScreenStanding.ENDED, ScreenStanding.REFUSED)

    @property
    def tuning(self) -> bool:
        """Whether a tuner is at work."""
        return self.snapshot is not None and self.snapshot.state == "tuning"

    @property
    def paused(self) -> bool:
        return self.tuning and self.details is not None and self.details.paused

    @property
    def acting(self) -> bool:
        """Whether a key may touch the job."""
        return self.standing is ScreenStanding.LIVE and not self.readonly
