"""Why no regime is named: one sentence with figures, and the command that would decide it.

`mixed` is a finding: the shares are measured and none leads, or two signals contradict. `unknown`
is none: something was not measured, can't be trusted, or no pair of signals carries what leads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.cpu_delay import mean_delay, outnumber
from autobrrr.diagnosis.models.leading import delayed_most, leads_all, measured_shares
from autobrrr.diagnosis.models.sampled_frames import busiest, is_loading
from autobrrr.diagnosis.models.shares import step_parts
from autobrrr.diagnosis.part_names import WORDS, mixture
from autobrrr.diagnosis.robust_stats import of_one, spread
from autobrrr.diagnosis.signal_reading import Reading, contradicted, unconfirmed
from autobrrr.diagnosis.verdict.agreement import AGREEMENT, carried, opposed, partners, supported
from autobrrr.diagnosis.verdict.named_reason import Sentence
from autobrrr.records import FrameSamples, Regime, Shares
from autobrrr.records.verdict_records import PHASE_WORDS

WITHHELD = "the machine is too busy"  # how busy, and by whom: records.busy_words
STACKS = ("host_frames", "loader_frames", "phase_frames")  # of samples over all the time
FROM_MEANS = ("input", "host", "communication")  # parts whose clocks see the long steps too


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCase:
    """All that the judge has before it."""

    measured: Measurements
    readings: Mapping[str, Reading]
    shares: Shares
    waited: float = 0.0  # of the time, for a CPU, while steps were traced: in any part of the step

    @property
    def busy(self) -> float:
        """Run-queue delay or stolen time; 0 where it was not measured."""
        return self.readings["busy_machine"].value or 0.0

    def delay(self, name: str) -> float:
        """The time that other programs, or the job's workers, may have added to a part of the step."""
        workers = 0.0 if name == "input" else mean_delay(self.measured, workers=True)
        return max(self.busy, workers, mean_delay(self.measured) if name in FROM_MEANS else 0.0)

    def is_steady(self, name: str) -> bool:
        """Whether a name may be sure: many even steps, on a machine that was seen to be quiet."""
        busy, uneven = self.readings["busy_machine"], spread(self.measured.step_ns)
        # Waits for data come in bursts by nature; everything else needs even steps.
        even = name == "input" or (uneven is not None and uneven <= thresholds.STEP_SPREAD)
        many = len(self.measured.step_ns) >= thresholds.STEPS_FIRM
        return many and even and busy.firm and not busy.abstained

    @property
    def leader(self) -> str | None:
        """The share that takes half of the step and leads clearly; None where none does."""
        shares = measured_shares(self.shares)
        if not shares:
            return None
        first = max(shares, key=lambda name: shares[name])
        return first if leads_all(first, delayed_most(first, shares, self.delay(first))) else None


Undecided = tuple[Regime, Sentence, str]  # regime, reason, command
Ground = Callable[[JudgedCase], Undecided | None]


def undecided(case: JudgedCase) -> Undecided:
    """The first ground that applies; the last one always does."""
    for ground in GROUNDS:
        found = ground(case)
        if found is not None:
            return found
    return _measuring(case)


def why_foreign(measured: Measurements) -> str | None:
    """Why this session can name nothing at all on this job; None where it can."""
    if measured.outside:
        return "nothing is measured inside the process with --outside"
    facts = measured.facts
    if facts is not None and facts.is_asynchronous:
        place = "runs on a GPU" if facts.on_cuda else f"computes on the device {facts.device}"
        return f"the job {place}, where host clocks do not show what the device does"
    return None


def _foreign(case: JudgedCase) -> Undecided | None:
    why = why_foreign(case.measured)
    if why is None:
        return None
    pid = case.measured.pid
    command = f"autobrrr diagnose {pid} --window"
    if case.measured.outside:  # a further attach would join this very session
        command = f"autobrrr detach {pid} && autobrrr diagnose {pid}"
    return "unknown", Sentence(adds=why), command


def _busy(case: JudgedCase) -> Undecided | None:
    if case.busy < thresholds.BUSY_AT or (case.busy < thresholds.WITHHELD_AT and not _shaken(case)):
        return None
    return "unknown", Sentence(adds=WITHHELD), _again(case)


def _shaken(case: JudgedCase) -> bool:
    """Whether the delay of the busy machine could explain what the table would name."""
    said = [getattr(case.shares, one.regime) for one in carried(case.readings)]
    return any(share is not None and share >= thresholds.NAMED_AT for share in said)


def _contradiction(case: JudgedCase) -> Undecided | None:
    """The clock that measures a share says its regime, and another signal excludes it.

    The other way round is none: the clock then shows that the share is small, while stacks, queues
    and a flat probe may look so for other reasons (weight traffic; samples fall where the thread
    gives the interpreter away).
    """
    for regime, first in dict.fromkeys((pair.regime, pair.first) for pair in AGREEMENT):
        speaker, deniers = case.readings[first], opposed(case.readings, regime)
        if speaker.says == regime and deniers:
            return "mixed", Sentence(adds=contradicted(speaker, deniers[0])), _again(case)
    return None


def _crowded(case: JudgedCase) -> Undecided | None:
    """Threads that take the CPUs from each other, and no roof that tells their waiting from their work."""
    reading = case.readings["oversubscription"]
    why = slow_in_many_threads(case) if reading.says is None else reading.note
    if why is None:
        return None
    return (
        "unknown",
        Sentence(adds=f"{why}: waiting threads look like working kernels"),
        f"autobrrr tune {case.measured.pid} --only threads.intra_op --for 2m",
    )


def slow_in_many_threads(case: JudgedCase) -> str | None:
    """More threads than CPUs, and kernels that aren't seen near a roof: they may sleep for each other."""
    measured, roof = case.measured, case.readings["roofline"]
    if case.readings["kernel_time"].abstained:
        return None
    reached = 0.0 if roof.abstained else roof.value or 0.0
    if not outnumber(measured) or reached >= thresholds.NAMED_AT or measured.facts is None:
        return None
    near = "no roof is known" if roof.abstained else f"kernels reach {of_one(reached)} of the nearer roof"
    return f"{measured.facts.threads} threads on {measured.cores} CPUs, and {near}"


def _long_steps(case: JudgedCase) -> Undecided | None:
    """Some long steps take so much of the time that what the usual one shows decides nothing."""
    reading = case.readings["uneven_steps"]
    said = [getattr(case.shares, one.regime) for one in carried(case.readings)]
    share = reading.value or 0.0
    if not said and share >= thresholds.NAMED_AT and case.busy < thresholds.BUSY_AT:  # nor by others
        return "mixed", Sentence(adds=f"{reading.note}{_stood(case)}"), _again(case)
    if not said or share < thresholds.EXCLUDED_AT:
        return None
    usual, word = of_one(max(one or 0.0 for one in said)), WORDS.get(carried(case.readings)[0].regime, "")
    return "mixed", Sentence(adds=f"{reading.note}; the usual step alone is {usual} {word}"), _again(case)


def _delayed(case: JudgedCase) -> Undecided | None:
    """Two signals carry what leads, but others may have made much of it: they took so much of the time."""
    shares = measured_shares(case.shares)
    for regime in (one.regime for one in carried(case.readings)):
        delay = case.delay(regime)
        if delay >= thresholds.BUSY_AT and leads_all(regime, shares):
            known = f"{of_one(shares[regime])} of a step is {WORDS[regime]}"
            kept = f"other programs kept the training thread off the CPU {of_one(delay)} of the time"
            adds = f"{kept}, which may be much of that"
            return "unknown", Sentence(known=known, adds=adds), _again(case)
    return None


def _stood(case: JudgedCase) -> str:
    """What the stacks say of all the time, where one place has most of it."""
    speaking = [one for one in map(case.readings.get, STACKS) if one is not None and one.says is not None]
    return f"; {speaking[0].note}" if speaking else ""


def _unsupported(case: JudgedCase) -> Undecided | None:
    """One share leads, and the second signal that would carry it is missing or indifferent."""
    leader = case.leader
    if leader is None or leader == "other":
        return None
    share = getattr(case.shares, leader)
    lead = f"{of_one(share)} of a step is {WORDS.get(leader, leader)}"
    rows = [pair for pair in AGREEMENT if pair.regime == leader]
    speaking = [reading.signal for reading in supported(case.readings, rows[0].regime)]
    others = [case.readings[name] for name in partners(rows[0].first, rows[0].regime) if name not in speaking]
    first = case.readings[rows[0].first]
    missing = others if first.signal in speaking else [first]
    probe = case.readings["batch_probe"]
    if leader == "overhead" and probe in missing and not probe.abstained:
        adds = f"{rows[0].first.replace('_', ' ')} show it, but only {probe.note}"
        return "mixed", Sentence(known=lead, adds=adds), _again(case)
    of_kernels = leader in ("compute", "memory", "underfilled")  # a trial shows more than more time
    command = f"autobrrr tune {case.measured.pid} --for 2m" if of_kernels else _missing(case, missing)
    return "unknown", Sentence(known=lead, adds=unconfirmed(missing)), command


def _mixture(case: JudgedCase) -> Undecided | None:
    """The step is measured, and nothing leads."""
    shares = measured_shares(case.shares)
    if case.shares.overhead is None or (case.shares.other or 0.0) >= thresholds.NAMED_AT:
        return None
    # Of kinds of kernels the one that leads takes less than twice the other one, by the clock itself.
    clock = case.readings["kernel_time"]
    two_kinds = case.leader in ("compute", "memory") and not clock.abstained and clock.says is None
    if case.readings["traced_steps"].abstained or (case.leader is not None and not two_kinds):
        return None
    return "mixed", Sentence(known=mixture(shares)), f"autobrrr tune {case.measured.pid} --for 2m"


def _no_step(case: JudgedCase) -> Undecided | None:
    """Whatever the job runs, and whether it could be traced: no step has ended yet."""
    if len(case.measured.step_ns) or case.measured.seen:
        return None
    why = f"no step has ended since attach{_stands(case.measured.frames)}"
    return "unknown", Sentence(adds=why), _again(case)


def _not_traceable(case: JudgedCase) -> Undecided | None:
    measured = case.measured
    if measured.compiled:
        window = case.readings["profiler_window"]
        seen = "" if window.abstained else f"; {window.note}"
        why = f"tracing would make the job compile its code again{_waits(case)}{seen}"
        tries = f"tune {measured.pid} --for 2m" if seen else f"diagnose {measured.pid} --window"
        return "unknown", Sentence(adds=why), f"autobrrr {tries}"
    if measured.readonly:
        why = f"a read-only session traces no step, so Python and kernels can't be separated{_waits(case)}"
        return "unknown", Sentence(adds=why), f"autobrrr diagnose {measured.pid}"
    return None


def _guard(case: JudgedCase) -> Undecided | None:
    if case.measured.traced is None:
        return None
    reading = case.readings["traced_steps"]
    return "unknown", Sentence(adds=f"{reading.detail or reading.note}{_waits(case)}"), _again(case)


def _measuring(case: JudgedCase) -> Undecided:
    steps = len(case.measured.step_ns)
    so_far = f"{steps} steps so far" if steps else f"no step counts yet ({case.measured.seen} since attach)"
    return "unknown", Sentence(adds=f"still measuring, {so_far}{_phases(case) or _waits(case)}"), _again(case)


GROUNDS: tuple[Ground, ...] = (
    _foreign,
    _no_step,  # where the thread stands helps on a busy machine, too
    _busy,
    _contradiction,
    _crowded,
    _long_steps,
    _delayed,
    _mixture,
    _unsupported,
    _not_traceable,
    _guard,
)


def _stands(frames: FrameSamples | None) -> str:
    """Where the main thread was seen before the first step ended."""
    if frames is None or not frames.places or frames.samples <= 0:
        return ""
    phases: Counter[str] = Counter()
    for place in frames.places:
        phases["data_wait" if is_loading(place) else place.phase] += place.samples
    words = {**PHASE_WORDS, "other": "other code"}
    shares = [(count / frames.samples, words.get(phase, phase)) for phase, count in phases.most_common()]
    listed = ", ".join(f"{word} {of_one(share)}" for share, word in shares if share >= 0.1)
    return f"; the main thread stands in: {listed}; most at {busiest(frames, lambda place: place.samples)}"


def _phases(case: JudgedCase) -> str:
    """Where the time goes by the phases alone: known from the first sampled step on."""
    parts = step_parts(case.measured)
    if parts is None:
        return ""
    ranked = sorted(((share, name) for name, share in parts.phase.items() if share >= 0.1), reverse=True)
    listed = ", ".join(f"{PHASE_WORDS.get(name, name)} {of_one(share)}" for share, name in ranked)
    return f": {listed} of a step" if listed else ""


def _waits(case: JudgedCase) -> str:
    share = case.shares.input
    return f"; {of_one(share)} of a step waits for data" if share is not None else ""


def _again(case: JudgedCase) -> str:
    """On a busy machine more time decides nothing: the last line of a result says whose CPUs are awaited."""
    longer = "" if case.busy >= thresholds.BUSY_AT else " --for 60s"
    return f"autobrrr diagnose {case.measured.pid}{longer}"


def _missing(case: JudgedCase, missing: list[Reading]) -> str:
    probe_off = case.measured.probe is None and case.measured.probing == "off"
    refused = case.measured.probe is not None and case.measured.probe.status == "abstained"
    asks_probe = any(reading.signal == "batch_probe" for reading in missing)
    if asks_probe and (probe_off or refused):
        return f"autobrrr diagnose {case.measured.pid} --probe --for 60s"
    return _again(case)
