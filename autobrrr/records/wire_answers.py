"""What a session answers beside its snapshots: its facts, its ending, and what a screen shows of it.

Field names are the names on the wire. Times are integer nanoseconds; None is "not measured".
"""

from __future__ import annotations

from typing import Literal

import msgspec

from autobrrr.agent.remedies.registry import RefusalCode
from autobrrr.records import Advice, OpTime, Record, Tuning


class SessionFacts(Record, frozen=True, kw_only=True):
    """What a session says of itself."""

    pid: int
    readonly: bool
    outside: bool
    probing: Literal["on", "off"]
    metrics: str | None = None  # where Prometheus may fetch its figures


class RemedyOutcome(Record, frozen=True, kw_only=True):
    """What became of a remedy, or of another switch; `why` is None where it was done."""

    remedy: str = ""
    why: str | None = None
    code: RefusalCode | None = None  # of the refusal
    token: int | None = None
    seq: int | None = None  # first step with (or without) the remedy
    log: str = ""  # where ranks that switch together share what they agree on
    host_peak_bytes: int | None = None  # of a revert: while the remedy was on
    device_peak_bytes: int | None = None


class SessionEnding(Record, frozen=True, kw_only=True):
    """Why a session is over.

    `left` is what could not be taken off the target, `stays` what all ranks of the job keep, `on` what is on
    afterwards of all remedies, `under` what was on as the job ended, `oom_kill` whether the kernel killed one
    of its processes for memory, `lost_lines` how many lines of the session's log could not be written,
    `decided` whether there was something to say about the job.
    """

    kind: Literal["detached", "job ended", "link lost", "removed", "failed"]
    why: str
    left: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()
    on: tuple[str, ...] = ()
    under: tuple[str, ...] = ()
    oom_kill: bool | None = None  # None where it can't be told
    lost_lines: int | None = None
    decided: bool = False


class LogTail(Record, frozen=True, kw_only=True):
    """The end of a session log."""

    path: str
    lines: list[str]


class Explained(Record, frozen=True, kw_only=True):
    """What a word that is shown means, where it comes from, what may silence it."""

    name: str
    kind: str  # one of the glossary's
    meaning: str
    source: str
    guards: tuple[str, ...] = ()
    example: str = ""  # of an edit: a line before it, a line after it


class ActivityLine(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A line of narration. `about` a switch: a remedy was applied or reverted."""

    text: str
    about: Literal["switch"] | None = None
    active: list[str] | None = None  # after a switch: all remedies that are on


class TuneFailed(Record, frozen=True, kw_only=True):
    """A tuning ended without a result."""

    message: str
    hint: str = ""
    exit_code: int | None = None


class SlowStep(Record, frozen=True, kw_only=True):
    """A step that took several times the usual; `why` is what autobrrr itself knows of it."""

    seq: int
    before_ns: int  # how long before the newest step it ended
    ns: int
    usual_ns: int  # the median at that time
    why: str | None = None
    device_ns: int | None = None  # by the device's clock; None on a CPU


class StepHistory(Record, frozen=True, kw_only=True):
    """Step durations over the last minutes, one bucket after the other, oldest first.

    `median_ns` and `longest_ns` have one entry a bucket, None where no step ended in it. Of the steps that
    stand for the job now, `counts[i]` took between `edges_ns[i]` and `edges_ns[i + 1]`.
    """

    bucket_ns: int
    median_ns: list[int | None] = []
    longest_ns: list[int | None] = []
    last_ns: int | None = None
    edges_ns: list[int] = []
    counts: list[int] = []
    slow: list[SlowStep] = []


class ActiveRemedy(Advice, frozen=True, kw_only=True):
    """A remedy that is on; `token` undoes it."""

    token: int
    planned: bool = False  # of the recipe that the job was started with

    @property
    def ours_and_live(self) -> bool:
        """Whether a tuner may switch it off and on again: the session put it on, and a boundary is enough."""
        return not self.planned and self.reach == "live"


class RecipeNow(Record, frozen=True, kw_only=True):
    """What is on, as a recipe; `problem` is None where it is valid."""

    text: str
    problem: str | None = None


class Details(Record, frozen=True, kw_only=True):
    """What a screen shows beside the snapshot."""

    history: StepHistory
    active: list[ActiveRemedy] = msgspec.field(name="levers", default_factory=list)
    remedies: list[Advice] = []  # that the tuning that runs tries, or one that is told nothing
    manual: list[Advice] = []  # that it tries only where it is told to
    later: list[Advice] = []  # that are advised, and not tried on a running job
    operators: list[OpTime] = []  # of the traced steps, widest first; per step
    recipe: RecipeNow | None = None
    tuned: Tuning | None = None  # the last result
    paused: bool = False
