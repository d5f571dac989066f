"""The judgement of a job or of a trace: regime, shares, evidence, advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

import msgspec

from autobrrr.quantities import duration, share, size
from autobrrr.records.record_base import Confidence, ExactnessClass, Limit, Reach, Record, Regime, TwoNumbers

LIMIT_OF_REGIME: Final[Mapping[str, Limit]] = {
    "overhead": "host",
    "host": "host",
    "input": "input",
    "sync": "sync",
    "communication": "communication",
    "memory": "kernels",
    "compute": "kernels",
    "underfilled": "kernels",
    "mixed": "mixed",
    "unknown": "unknown",
}
EXACT: Final = ("garbage", "recompilation")  # limits that need no second signal, on a busy machine neither
NAMES_NOBODY: Final = ("mixed", "unknown")
MOST: Final = 0.5  # of a step
WORTH_NAMING = 1.05
UNSURE = 0.1  # two standard errors of a share, from which they are said beside it
PHASE_WORDS = {
    "other": "between the phases",
    "data_wait": "waiting for data",
    "host_to_device": "copies to the device",
    "optimizer": "update or zero_grad",
}


def in_phase(kind: str, phase: str) -> str:
    """`operators, between the phases`."""
    return f"{kind}, {PHASE_WORDS.get(phase, phase)}"


class Shares(Record, frozen=True, kw_only=True):
    """Parts of the whole step; those that are measured, with `other`, sum to one."""

    overhead: float | None = None
    input: float | None = None
    host: float | None = None
    sync: float | None = None
    communication: float | None = None
    memory: float | None = None
    compute: float | None = None
    underfilled: float | None = None
    other: float | None = None


class Evidence(Record, frozen=True, kw_only=True):
    """What one signal found. `says` is what it says alone; `against` what it excludes."""

    signal: str
    says: str | None
    value: float | None
    unit: str
    note: str
    against: list[str] = []


class LedgerRow(Record, frozen=True, kw_only=True):
    """One part of the step; all rows of a ledger sum to the step."""

    phase: str
    kind: str  # what it does: "python", "operators", "sampler", "loader worker", "garbage", "unseen", ...
    where: str | None  # "train.py:31 main", the user's own code; None: no line of theirs
    ns: int
    share: float  # of the step
    source: str  # instrument, or why nothing was seen
    error: float | None = None  # two standard errors of the share


class Where(Record, frozen=True, kw_only=True):
    """A function of the user's, or a line outside of any, that the step spends time in."""

    file: str
    line: int  # the slowest one
    function: str
    share: float  # of the step, all of the function
    error: float  # two standard errors
    phase: str
    does: str  # as the ledger's `kind`

    @property
    def place(self) -> str:
        """`train.py:31 main`."""
        return f"{self.file}:{self.line} {self.function}"

    @property
    def words(self) -> str:
        """`train.py:31 main, 39 % of the step (operators, between the phases)`."""
        sure = f" (+-{100 * self.error:.0f})" if self.error >= UNSURE else ""
        return f"{self.place}, {share(self.share)}{sure} of the step ({in_phase(self.does, self.phase)})"


class MemoryPart(Record, frozen=True, kw_only=True):
    """What holds a part of the job's memory."""

    place: str  # "host", "device"
    what: str  # "parameters and buffers", "optimizer state", ...
    bytes: int


class Trend(Record, frozen=True, kw_only=True):
    """What changes while a session watches."""

    what: str  # "step": ns; "memory": bytes of the process
    kind: str  # "grows", "periodic"
    first: float  # at the beginning; of what is periodic: the usual step
    last: float  # at the end; of what is periodic: the long step
    per_step: float | None = None  # it grows by so much
    every: int | None = None  # steps
    where: str | None = None  # the user's line that most of it is at

    @property
    def words(self) -> str:
        """`steps grow, from 11.5 ms to 13.1 ms: 2.10 us a step, most at metric.py:26 compute`."""
        at = f", most at {self.where}" if self.where else ""
        if self.kind == "periodic":
            took = f"{duration(self.last)} instead of {duration(self.first)}"
            return f"every {self.every} steps one takes {took}{at}"
        if self.what == "memory":
            grown = f"{size(self.per_step)} a step, from {size(self.first)} to {size(self.last)}"
            kept = "what is kept of each step? A loss or an output keeps its graph until .item() or .detach()"
            return f"memory grows by {grown}: {kept}"
        grown = f"steps grow, from {duration(self.first)} to {duration(self.last)}"
        return f"{grown}: {duration(self.per_step)} a step{at}"


class Advice(Record, frozen=True, kw_only=True):
    """A remedy with its options, and what is expected of it.

    The same with the same options is the same, whatever is expected of it.
    """

    remedy: str
    why: str = ""
    expected: float | None = None  # factor: 1.3 = 30 % more steps per second
    reach: Reach
    class_: ExactnessClass = msgspec.field(name="class")
    interval: TwoNumbers | None = None  # of `expected`, where it is an estimate under a prior
    options: dict[str, object] = {}  # to try it with, where they are not its defaults
    place: str = ""  # of an edit, where it is known: file, line and function
    at_best: bool = False  # always false: the class is what the remedy's form has

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Advice) and (self.remedy, self.options) == (other.remedy, other.options)

    def __hash__(self) -> int:
        return hash(self.remedy)

    @property
    def label(self) -> str:
        return label(self.remedy, self.options)


def label(remedy: str, options: Mapping[str, object]) -> str:
    """`threads.intra_op(threads=1)`."""
    inside = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"{remedy}({inside})" if inside else remedy


def from_registry(remedy: str, options: Mapping[str, object] | None = None) -> Advice:
    """A remedy as the registry has it."""
    from autobrrr.agent.remedies.families import REGISTRY  # not for --help

    row = REGISTRY[remedy]
    reach, class_ = cast("Reach", row.reach), cast("ExactnessClass", row.cls)
    return Advice(remedy=remedy, why=row.doc, reach=reach, class_=class_, options=dict(options or {}))


class Verdict(Record, frozen=True, kw_only=True):
    """The judgement alone; a `Diagnosis` is one dressed with the session's figures."""

    regime: Regime
    confidence: Confidence
    reason: str
    shares: Shares
    evidence: list[Evidence]
    advice: list[Advice] = []
    decide_with: str | None = None  # the command that would decide an undecided case
    provisional: bool = False  # named while the machine is too busy to be sure
    before_tuning: bool = False  # of the job without what the last tuning kept
    limit: Limit = "unknown"  # who limits the step; the regime says with what
    limit_confidence: Confidence = "low"
    limit_reason: str = ""
    adds: str = ""  # what the reason says beyond the limit's; texts show it below that
    where: list[Where] = []  # lines of the user's own code, what they may change first
    ledger: list[LedgerRow] = []  # the whole step
    trends: list[Trend] = []  # what grows, or comes at a period


def limit_name(limit: Limit, compute: float | None = None) -> str:
    """ "limited by kernels": who, without how sure. Products that take half of a step are "computation"."""
    if limit == "unknown":
        return "limit: unknown"
    if limit == "kernels" and (compute or 0.0) >= MOST:
        return "limited by computation"
    if limit == "garbage":
        return "limited by garbage collection"
    return "limited by several parts" if limit == "mixed" else f"limited by {limit}"


def limit_words(limit: Limit, confidence: Confidence, compute: float | None = None) -> str:
    """ "limited by kernels (high)": the head of every output."""
    if limit == "unknown":
        return limit_name(limit)
    return f"{limit_name(limit, compute)} ({'mixed' if limit == 'mixed' else confidence})"


def verdict_line(found: Verdict) -> str:
    """`Limited by computation: 76 % matrix products (high confidence). Best bets: ...`, with what it adds."""
    adds = f"; {found.adds}" if found.adds else ""
    return f"{verdict_head(found)}{adds}{best_bets(found.advice)}"


def verdict_head(found: Verdict) -> str:
    """The verdict in its fewest words: who limits the step, with what, how sure."""
    return limited_by(found) + ("" if found.limit in NAMES_NOBODY else f" ({how_sure(found)})")


def how_sure(found: Verdict) -> str:
    """`high confidence`, of whoever is named."""
    sure = f"{found.limit_confidence} confidence{', before the tuning' * found.before_tuning}"
    return "no verdict" if found.limit in NAMES_NOBODY else sure


def limited_by(found: Verdict) -> str:
    """The same without how sure: `Limited by host: 68 % Python and dispatch`."""
    if found.limit == "unknown":
        return f"No verdict: {found.reason}"
    if found.limit == "mixed":
        return found.limit_reason
    return f"{limit_name(found.limit, found.shares.compute).capitalize()}: {found.limit_reason}"


def best_bets(advice: Sequence[Advice]) -> str:
    """`. Best bets: optimizer.fused (1.6x), batch.larger (1.8x, changes-training)`; empty without one."""
    worth = [one for one in advice if one.expected is not None and one.expected >= WORTH_NAMING][:2]
    said = [
        f"{one.remedy} ({one.expected:.2g}x{', changes-training' * (one.class_ == 'changes-training')})"
        for one in worth
    ]
    return f". Best bets: {', '.join(said)}" if said else ""
