"""What a tuning tried, kept and undid; and what that leaves of the advice."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import msgspec

from autobrrr.quantities import size
from autobrrr.records.agent_records import JobFacts
from autobrrr.records.gain_words import gain_words
from autobrrr.records.record_base import SCHEMA, ExactnessClass, Record, TwoNumbers
from autobrrr.records.verdict_records import Advice


class NoClaim(str, enum.Enum):
    """Why a tuning claims no speed-up."""

    NO_DEVICE_STAMPS = "no_device_stamps"  # on a device that works asynchronously, whose clock is not seen
    CROWDED = "crowded"  # its figure holds beside the programs that took the CPUs, and perhaps only there


class MemoryPeaks(Record, frozen=True, kw_only=True):
    """The most memory that a job took with a remedy on; None where it was not measured."""

    host_bytes: int | None = None  # by its memory group where that has a limit, else of the training process
    device_bytes: int | None = None  # that torch's allocator held of the fullest device

    @property
    def words(self) -> str:
        """`433 MB`, with a device `1.20 GB, device 8.10 GB`; "-" where none was measured."""
        if self.device_bytes is None:
            return size(self.host_bytes)
        return f"{size(self.host_bytes)}, device {size(self.device_bytes)}"


NO_PEAKS = MemoryPeaks()


def highest(peaks: Iterable[MemoryPeaks]) -> MemoryPeaks:
    """Of several the highest, host and device each by itself."""
    found = list(peaks)
    host, device = ([each.host_bytes for each in found], [each.device_bytes for each in found])
    return MemoryPeaks(
        host_bytes=max((each for each in host if each is not None), default=None),
        device_bytes=max((each for each in device if each is not None), default=None),
    )


class Trial(Record, frozen=True, kw_only=True):
    """One remedy, tried in interleaved blocks on the running job."""

    remedy: str
    options: dict[str, object]
    outcome: Literal["kept", "undone", "refused", "skipped"]
    why: str
    class_: ExactnessClass = msgspec.field(name="class")
    predicted: float | None
    achieved: float | None  # factor on speed; 1.3 = 30 % more steps per second
    interval: TwoNumbers | None
    blocks: int
    steps: int
    duration_ns: int
    without_ns: float | None = None  # mean step of the blocks without it
    memory_bytes: int | None = None  # what a relaunched trial took at most; of the GPU where it has one
    predicted_memory_bytes: int | None = None  # what was expected before it was started
    peaks: MemoryPeaks = NO_PEAKS  # of a trial on the running job, with the remedy on

    @property
    def outcome_word(self) -> str:
        """The outcome for people: "undone" is a word of the JSON alone."""
        return {"undone": "reverted"}.get(self.outcome, self.outcome)


class Reverted(Record, frozen=True, kw_only=True):
    remedy: str
    why: str


class Tuning(Record, frozen=True, kw_only=True):
    """`tune --json`."""

    schema: int = SCHEMA
    objective: Literal["step_ns", "samples_per_s", "tokens_per_s"]
    baseline: float | None
    best: float | None
    speedup: float
    interval: TwoNumbers | None
    class_: ExactnessClass = msgspec.field(name="class")
    kept: list[str]
    reverted: list[Reverted]
    trials: list[Trial]
    recipe: str | None
    note: str | None = None
    guard_undid: list[Reverted] = []  # kept, then undone by the guard: exit code 5
    job: JobFacts | None = None
    clock: Literal["host", "device"] = "host"  # by which its figures were taken
    no_claim: NoClaim | None = None
    enough_s: int | None = None  # of --for, for what was skipped for want of time
    peaks: MemoryPeaks = NO_PEAKS  # in the confirmation run, with all that is kept

    @property
    def proven(self) -> bool:
        """Something was kept, and a confirmation run on a machine that was free has shown what it gains."""
        return bool(self.kept) and self.interval is not None and self.no_claim is None

    def without(self, undid: Reverted) -> Tuning:
        """The same once its guard has reverted a remedy: what is left was not measured by itself."""
        told = msgspec.structs.replace(self, guard_undid=[*self.guard_undid, undid])
        if undid.remedy not in self.kept:
            return told
        why = f"reverted by the guard: {undid.why}"
        return msgspec.structs.replace(
            told,
            best=self.baseline,
            speedup=1.0,
            interval=None,
            kept=[each for each in self.kept if each != undid.remedy],
            trials=[
                msgspec.structs.replace(each, outcome="undone", why=why)
                if each.remedy == undid.remedy and each.outcome == "kept"
                else each
                for each in self.trials
            ],
            recipe=None,
        )


class TuneProgress(Record, frozen=True, kw_only=True):
    """Where a tuning stands; sent after every pair of blocks, and once a second between them."""

    stage: Literal["trial", "ablation", "final", "guard"]
    text: str  # one line for people
    remedy: str | None = None
    options: dict[str, object] = {}
    pairs: int = 0
    steps: int = 0
    achieved: float | None = None  # factor on speed, as far as it is known
    interval: TwoNumbers | None = None
    kept: list[str] = []
    elapsed_ns: int = 0
    budget_ns: int = 0


def after_trials(
    advice: Sequence[Advice], trials: Iterable[Trial], active: Collection[str] = ()
) -> list[Advice]:
    """The advice once trials have measured remedies: a trial overrules the prediction.

    What is on already, or was measured and not kept, is no advice; what was kept and is off again has the
    gain that its trial measured.
    """
    measured = sorted(
        (each for each in trials if each.achieved is not None),
        key=lambda each: (each.outcome == "kept", each.achieved or 0.0),
    )
    best = {each.remedy: each for each in measured}
    found = []
    for one in advice:
        trial = best.get(one.remedy)
        if one.remedy in active or (trial is not None and trial.outcome != "kept"):
            continue
        why = "" if trial is None else f"a trial measured {gain_words(trial.achieved, trial.interval)}"
        gain = {} if trial is None else {"expected": trial.achieved, "interval": trial.interval, "why": why}
        found.append(msgspec.structs.replace(one, **gain))
    return found
