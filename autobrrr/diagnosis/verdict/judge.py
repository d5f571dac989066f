"""The judgement: readings, shares and the table of agreement become one regime, or none with a reason.

A regime is named when a pair carries it, it takes half of the step, leads by 15 points over
anything else (what nobody measured counts as one rival), and the machine is quiet enough.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.advice.advice import advise
from autobrrr.diagnosis.ledger import ledger, placed_trends, wheres
from autobrrr.diagnosis.measurements import Measurements, step_stats
from autobrrr.diagnosis.models.batch_fit import BatchFit, fit_batch
from autobrrr.diagnosis.models.cpu_delay import foreign_delay
from autobrrr.diagnosis.models.leading import delayed_most, leads, leads_all, leads_the_rest, measured_shares
from autobrrr.diagnosis.models.shares import shown_phases, step_shares
from autobrrr.diagnosis.models.trends import work_grows
from autobrrr.diagnosis.robust_stats import of_one
from autobrrr.diagnosis.signals.signal_table import read_all
from autobrrr.diagnosis.verdict.agreement import Pair, both_firm, carried
from autobrrr.diagnosis.verdict.gpu_verdict import device_verdict
from autobrrr.diagnosis.verdict.named_reason import named_reason
from autobrrr.diagnosis.verdict.step_limit import limit_sentence, step_limit
from autobrrr.diagnosis.verdict.undecided_reason import FROM_MEANS, JudgedCase, undecided, why_foreign
from autobrrr.records import (
    EXACT,
    NAMES_NOBODY,
    BatchProbe,
    Confidence,
    Limit,
    Phases,
    Regime,
    StepStats,
    Verdict,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with the figures that stand beside it in a diagnosis."""

    verdict: Verdict
    batch_probe: BatchProbe
    phases_ns: Phases
    step_ns: StepStats


def judge(measured: Measurements) -> Judgement:
    """Judge what has been measured so far. Cheap; may be called at every refresh.

    Where steps were traced on a busy machine, the regime or the limit that they show is named provisionally,
    if all the time that the training thread waited for a CPU, taken off it, leaves it ahead of all the rest.
    """
    found, waited = _judged(measured), waited_while_traced(measured)
    exact = found.verdict.limit in EXACT
    if found.verdict.regime != "unknown" or exact or waited is None or measured.traced is None:
        return found
    as_if_quiet = msgspec.structs.replace(measured.traced, run_delay_share=0.0)
    again = _judged(replace(measured, traced=as_if_quiet), waited)
    doubt = f"provisional: machine busy while tracing ({of_one(waited)} of the time without a CPU)"
    regime, reason = again.verdict.regime, f"{again.verdict.reason}; {doubt}"
    if not _may_be_provisional(regime, measured):
        if not _may_be_provisional(again.verdict.limit, measured):
            return found
        if regime not in NAMES_NOBODY:
            regime, reason = "unknown", found.verdict.reason
    verdict = msgspec.structs.replace(
        again.verdict,
        regime=regime,
        confidence="low",
        limit_confidence="low",
        provisional=True,
        reason=reason,
        adds=f"{again.verdict.adds}; {doubt}" if again.verdict.adds else doubt,
        evidence=found.verdict.evidence,
        decide_with=found.verdict.decide_with,
    )
    return replace(again, verdict=verdict)


def _may_be_provisional(named: Regime | Limit, measured: Measurements) -> bool:
    """Whether the training thread's own wait bounds what others can have done to the share.

    A kernel on several threads waits for the last of them, and any kernel looks slow beside its roof where
    it had no CPU.
    """
    if named in ("memory", "compute", "kernels"):
        return measured.facts is not None and measured.facts.threads == 1
    return named not in (*NAMES_NOBODY, "underfilled")


def waited_while_traced(measured: Measurements) -> float | None:
    """The part of the time that others kept the traced steps from a CPU, where that silences them."""
    traced = measured.traced
    if traced is None or traced.status != "ok":
        return None
    delay = foreign_delay(traced.run_delay_share, traced.foreign_cores)
    return delay if delay is not None and thresholds.BUSY_AT <= delay < thresholds.WITHHELD_AT else None


def _judged(measured: Measurements, waited: float = 0.0) -> Judgement:
    readings = read_all(measured)
    shares = step_shares(measured)
    case = JudgedCase(measured=measured, readings=readings, shares=shares, waited=waited)
    carrier = _carrier(case)
    decide_with = None
    confidence: Confidence = "low"
    if carrier is not None:
        regime, reason = carrier.regime, named_reason(carrier.regime, measured, readings, shares)
        sure = both_firm(readings, carrier) and case.is_steady(carrier.regime)
        confidence = "high" if sure else "low"
    else:
        regime, reason, decide_with = undecided(case)
    limited = step_limit(case, regime, confidence)
    verdict = Verdict(
        regime=regime,
        confidence=confidence,
        reason=reason.text,
        adds=reason.adds,
        shares=shares,
        evidence=[reading.evidence() for reading in readings.values()],
        decide_with=decide_with,
        limit=limited.limit,
        limit_confidence=limited.confidence,
    )
    on_device = device_verdict(measured, readings["busy_machine"])
    if on_device is not None:
        verdict = msgspec.structs.replace(on_device, evidence=[*on_device.evidence, *verdict.evidence])
    advice, told = advise(measured, verdict), case.busy < thresholds.BUSY_AT or work_grows(measured)
    sentence = verdict.limit_reason or limit_sentence(limited, case, undecided=reason.text)
    adds = verdict.adds if on_device is None else verdict.reason
    fit = fit_batch(measured.probe)
    return Judgement(
        verdict=msgspec.structs.replace(
            verdict,
            advice=advice,
            limit_reason=sentence,
            where=wheres(measured),
            ledger=ledger(measured),
            trends=[one for one in placed_trends(measured) if one.what == "memory" or told],
            adds="" if sentence == verdict.reason else adds.removeprefix(sentence).removeprefix("; "),
        ),
        batch_probe=msgspec.structs.replace(
            fit.probe if isinstance(fit, BatchFit) else fit,
            memory=measured.probe.memory if measured.probe is not None else None,
        ),
        phases_ns=shown_phases(measured),
        step_ns=step_stats(measured.step_ns),
    )


def _carrier(case: JudgedCase) -> Pair | None:
    """The pair that names the regime; None where none may."""
    shares = measured_shares(case.shares)
    if why_foreign(case.measured) is not None or max(case.busy, case.waited) >= thresholds.WITHHELD_AT:
        return None
    for one in carried(case.readings):
        delay = max(case.waited, case.delay(one.regime))
        delayed = delayed_most(one.regime, shares, delay)
        if not leads_all(one.regime, delayed):
            continue
        # Traced steps speak of the usual step alone: what longer ones take is a rival of its own.
        uneven = 0.0 if one.regime in FROM_MEANS else case.readings["uneven_steps"].value or 0.0
        if uneven >= thresholds.EXCLUDED_AT and not leads("", (1 - uneven) * shares[one.regime], uneven):
            continue
        if leads_the_rest(one.regime, delayed, delay):
            return one
    return None
