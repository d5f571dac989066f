"""What may be tried on this job, and in which order.

In: the registry, the job's facts, the verdict with its predicted gains, what the user allows.
Out: candidates, the most promising first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import msgspec

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import CLASSES, Remedy, up_to
from autobrrr.diagnosis.advice.advice import treated_regimes
from autobrrr.errors import UsageError
from autobrrr.readable import nearest
from autobrrr.records import Advice, ExactnessClass, JobFacts, Verdict, from_registry

MOST_THREAD_COUNTS = 4
USUAL_GAIN = 1.01  # of what the diagnosis predicts nothing for, over all jobs
UNPROVEN = "unproven"
USUAL_ORDER = ("threads.intra_op", "optimizer.fused", "optimizer.foreach")
"""Where the diagnosis predicts nothing: what is decided soonest, or includes the next, first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the user lets a tuning try."""

    allowed: tuple[ExactnessClass, ...] = ("bitwise", "rounding")
    """Exactness classes; see `allowed_classes`."""
    unproven: bool = False
    """Whether what no device has run yet is tried without being named."""
    only: tuple[str, ...] = ()
    """Names of remedies; empty for all."""

    def tries(self, remedy: Remedy) -> bool:
        """Whether it is tried at all."""
        unasked = self.only or remedy.only_named or (remedy.unproven and not self.unproven)
        is_asked = remedy.name in self.only or not unasked
        return _can_be_tried(remedy) and remedy.cls in self.allowed and is_asked


def allowed_classes(allow: str | None) -> tuple[ExactnessClass, ...]:
    """All exactness classes up to and with the one in `allow`; bitwise and rounding by default.

    Args:
        allow: A class, `unproven`, or both with a comma between them.

    Raises:
        UsageError: there is no such class.
    """
    classes = [word for word in (allow or "").split(",") if word not in ("", UNPROVEN)]
    if not classes:
        return "bitwise", "rounding"
    if len(classes) > 1 or classes[0] not in CLASSES:
        raise UsageError(f"--allow {allow}: no such class", f"one of {', '.join((*CLASSES, UNPROVEN))}")
    return cast("tuple[ExactnessClass, ...]", up_to(classes[0]))


def allows_unproven(allow: str | None) -> bool:
    """Whether what no device has run yet is tried without being named."""
    return UNPROVEN in (allow or "").split(",")


def check_names(only: Sequence[str]) -> None:
    """Are these remedies that can be tried on a running job?

    Raises:
        UsageError: one is not.
    """
    for name in only:
        if name not in REGISTRY:
            near = nearest(name, REGISTRY)
            hint = f"did you mean {near}?" if near else "autobrrr explain lists all remedies"
            raise UsageError(f"--only {name}: no such remedy", hint)
        if not _can_be_tried(REGISTRY[name]):
            raise UsageError(
                f"--only {name}: not possible on a running job ({REGISTRY[name].reach})",
                f"autobrrr tune --param {name} -- COMMAND tries it from the start on",
            )


def conflicts(choice: Advice, other: Advice) -> bool:
    """It can't come on while the other is on, for it sets what that one sets or needs steady."""
    return choice.remedy == other.remedy or bool(REGISTRY[choice.remedy].disturbs(REGISTRY[other.remedy]))


def widest(classes: Sequence[ExactnessClass]) -> ExactnessClass:
    """The class of all together; bitwise for none."""
    return max(classes, key=CLASSES.index, default="bitwise")


def candidates(
    *, facts: JobFacts, cores: int | None, verdict: Verdict | None, selection: Selection
) -> list[Advice]:
    """Live remedies that the user allows, ordered as they are advised, then by the verdict.

    Raises:
        UsageError: `only` names a remedy that does not exist or can't be tried on a running job.
    """
    check_names(selection.only)
    advice = {} if verdict is None else {each.remedy: each for each in verdict.advice}
    predicted = {name for name, each in advice.items() if each.expected is not None}
    treated: frozenset[str] = frozenset() if verdict is None else treated_regimes(verdict)
    found = [
        choice
        for remedy in REGISTRY.values()
        if selection.tries(remedy)
        and (remedy.name in predicted or remedy.name in selection.only or not remedy.only_predicted)
        for choice in _choices(remedy, facts, cores, advice.get(remedy.name))
    ]

    def promise(choice: Advice) -> tuple[float, bool, float, bool, int]:
        remedy = REGISTRY[choice.remedy]
        # Rare long steps take long to see: such a remedy comes last among equals. So does a dear one.
        gain = choice.expected or USUAL_GAIN
        usual = USUAL_ORDER.index(remedy.name) if remedy.name in USUAL_ORDER else len(USUAL_ORDER)
        if _adds_threads(choice, facts):
            usual = len(USUAL_ORDER) + 1
        return (-gain, remedy.rare, remedy.price_s, treated.isdisjoint(remedy.treats), usual)

    return sorted(found, key=promise)


def unasked(*, verdict: Verdict | None, selection: Selection) -> list[tuple[Advice, str]]:
    """What is asked for by name, or advised for the running job, and not tried; with the reason.

    A live remedy has to be predicted to gain. A loader setting is advised only where the job waits for data.
    """
    advice = {} if verdict is None else {each.remedy: each for each in verdict.advice}
    foreseen = [
        name
        for name, each in advice.items()
        if each.reach == "next_epoch" or (each.reach == "live" and (each.expected or 1.0) > USUAL_GAIN)
    ]
    found = []
    for name in selection.only or foreseen:
        remedy = REGISTRY.get(name)
        if remedy is None or not _can_be_tried(remedy) or selection.tries(remedy):
            continue
        why = f"its class is {remedy.cls}; --allow {remedy.cls} tries it"
        if remedy.cls in selection.allowed:
            asked = f"--allow {UNPROVEN}" if remedy.unproven else f"--only {name}"
            why = f"not tried unasked; {asked} tries it"
        found.append((advice.get(name) or from_registry(name), why))
    return found


def _adds_threads(choice: Advice, facts: JobFacts) -> bool:
    """Where others run on the CPUs that it would take, each step waits for them: a dear trial."""
    threads = choice.options.get("threads")
    return isinstance(threads, int) and facts.threads is not None and threads > facts.threads


def _can_be_tried(remedy: Remedy) -> bool:
    """Steps tell its gain: those of a larger batch do more work."""
    return remedy.reach != "relaunch" and "loader.batch_size" not in remedy.targets


def _choices(remedy: Remedy, facts: JobFacts, cores: int | None, advised: Advice | None) -> list[Advice]:
    options: list[dict[str, object]]
    if advised is not None and advised.options:
        options = [advised.options]
    elif remedy.name == "threads.intra_op":
        options = [{"threads": count} for count in thread_counts(facts.threads, cores)]
    else:
        asked = [each for each in remedy.options if each.kind == "choice" and each.default is None]
        options = [
            {option.name: value}
            for option in asked[:1]
            for value in option.choices
            if value not in option.only_named and (facts.on_cuda or value not in option.on_cuda)
        ] or [{}]
    found = advised or from_registry(remedy.name)
    return [msgspec.structs.replace(found, why=remedy.doc, options=each) for each in options]


def thread_counts(now: int | None, cores: int | None) -> list[int]:
    """Thread counts worth a trial: 1, all cores, and what lies between; without the present one."""
    most = max(1, cores or now or 1)
    counts = dict.fromkeys((1, most, most // 2, most // 4))
    return [count for count in counts if count >= 1 and count != now][:MOST_THREAD_COUNTS]
