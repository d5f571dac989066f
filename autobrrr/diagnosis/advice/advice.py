"""Remedies that fit the verdict and the job, each with its reason and what it would bring: the best first,
after all others those that change the training (an edit that does is its author's to decide on).

Names, reach and class come from the registry, reasons from `remedy_fit`, predictions from `predicted_gains`.
Among them edits of the script itself (`script_edits`, `ledger_edits`, `job_settings`), for its author.
"""

from __future__ import annotations

from typing import Final

import msgspec

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.advice import remedy_fit
from autobrrr.diagnosis.advice.compiled_gain import compiled_gain
from autobrrr.diagnosis.advice.job_settings import costly_settings
from autobrrr.diagnosis.advice.ledger_edits import ledger_edits
from autobrrr.diagnosis.advice.predicted_gains import HIGHEST, more_threads, predicted_gain
from autobrrr.diagnosis.advice.script_edits import needed_edits
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.shares import step_parts
from autobrrr.records import LIMIT_OF_REGIME, NAMES_NOBODY, Advice, Verdict, from_registry

CHANGES: Final = "changes-training"
# None knows how much, and where a step reads a weight once the last of them costs nothing.
COSTS = ("edit.deterministic", "edit.cudnn_benchmark", "edit.requires_grad", "edit.cache_parametrization")
WORTH_SAYING = 1.03
WORKERS_OFF = 1.26  # at most, of predictions on ten jobs
LOADED = {"edit.cheaper_items": "loader.workers"}  # both gains are estimates
MEASURED_AT = 1.1  # from here on what an edit of measured lines would bring comes before an estimate


def advise(measured: Measurements, verdict: Verdict) -> list[Advice]:
    """Remedies of what the verdict names, on both of its levels, and those whose gain the step shows.

    None while the step is still being measured: what comes then may go again.
    """
    may_trace = not (measured.readonly or measured.outside)
    measuring = verdict.regime == "unknown" and measured.traced is None and may_trace
    gains = {} if measuring else predicted_gain(measured)
    treated = treated_regimes(verdict)
    found = []
    for name, remedy in REGISTRY.items():
        expected = gains.get(name)
        worth = expected is not None and expected >= WORTH_SAYING
        fits = not treated.isdisjoint(remedy.treats) and (expected is None or worth)
        # A larger batch changes the training: only a verdict that asks for it brings it up.
        shown = worth and remedy.cls != CHANGES
        why = remedy_fit.why(name, measured) if fits or shown else None
        if why is not None:
            known = from_registry(name, remedy_fit.options(name, measured))
            gain = None if expected is None else round(expected, 3)
            interval = _interval(name, gain, measured)
            found.append(msgspec.structs.replace(known, why=why, expected=gain, interval=interval))
    certain = costly_settings(measured) + ledger_edits(measured)
    # Without a gain, and first: a switch that was left on, on which predictions rest, or memory that grows.
    first = [one for one in certain if one.expected is None and one.remedy not in COSTS]
    rest = [one for one in certain if one not in first] + needed_edits(measured) + found
    sure = {one.expected or 1.0: one.remedy for one in rest if one.reach == "edit" and one.class_ != CHANGES}
    most = max(sure, default=1.0)
    own = most if most >= MEASURED_AT else HIGHEST
    as_sure = LOADED.get(sure.get(most, ""))
    less = {id(one) for one in rest if one.interval and one.interval[0] < own and one.remedy != as_sure}
    # Page faults are of large tensors: what does without them may save as much.
    less |= {id(one) for one in rest if one.remedy == "host.malloc" and own**2 >= (one.expected or 1.0)}
    rest.sort(
        key=lambda one: (-min(one.expected or 1.0, own if id(one) in less else HIGHEST), id(one) in less)
    )
    # An edit is its author's to decide on. What is tried comes last where it changes the training.
    return sorted(first + rest, key=lambda one: one.class_ == CHANGES and one.reach != "edit")


def treated_regimes(verdict: Verdict) -> frozenset[str]:
    """The regimes that a remedy has to treat: the named one, and those that weigh in the limit."""
    parts = msgspec.structs.asdict(verdict.shares).items()
    weighing = {
        name
        for name, share in parts
        if verdict.limit not in NAMES_NOBODY
        and LIMIT_OF_REGIME.get(name) == verdict.limit
        and (share or 0.0) >= thresholds.EXCLUDED_AT
    }
    return frozenset(weighing | {verdict.regime})


def _interval(name: str, gain: float | None, measured: Measurements) -> list[float] | None:
    if name == "loader.workers" and gain is not None:
        return [round(max(1.0, gain / WORKERS_OFF), 3), round(gain * WORKERS_OFF, 3)]
    more = more_threads(measured) if name == "threads.intra_op" else None
    if more is not None:
        return [1.0, round(1 / (1 - more[1]), 3)]  # large kernels may wait for memory, not for a CPU
    parts = step_parts(measured) if name == "compile.default" else None
    compiled = None if parts is None else compiled_gain(measured, parts)
    return None if compiled is None else [round(end, 3) for end in compiled.interval]
