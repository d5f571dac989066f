"""A session as its clients see it: a snapshot for all, and the details that a screen shows beside it.

In: measurements and the last judgement; the last tuning. Out: `records.Diagnosis`, `wire_answers.Details`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

import msgspec

from autobrrr import recipe
from autobrrr.diagnosis.measurements import Measurements, step_stats
from autobrrr.diagnosis.models.memory_parts import memory_parts
from autobrrr.diagnosis.models.shares import shown_phases
from autobrrr.diagnosis.models.size_sweep import size_sweep
from autobrrr.diagnosis.ranks.rank_times import rank_times
from autobrrr.diagnosis.signals.machine import contention
from autobrrr.errors import AutobrrrError
from autobrrr.records import Advice, Attach, Cost, Diagnosis, ExactnessClass, GpuSample, JobFacts, Tuning
from autobrrr.records.session_requests import TuneRequest
from autobrrr.records.tuning_records import after_trials
from autobrrr.records.wire_answers import ActiveRemedy, Details, RecipeNow
from autobrrr.sidecar.process.session_options import State
from autobrrr.tuner.candidate_space import Selection, allowed_classes, candidates

if TYPE_CHECKING:
    from autobrrr.sidecar.session.session import Session
    from autobrrr.sidecar.tuning.tuning_thread import TuningThread


def snapshot(session: Session) -> Diagnosis:
    """The session at this moment."""
    measured, judgement = session.findings.measurements(session.elapsed_ns), session.judgement
    attach = session.findings.attach
    active, steps, compared = session.remedies_on, session.steps, session.compared
    stats = step_stats(measured.step_ns)
    verdict = msgspec.structs.asdict(judgement.verdict)
    verdict["before_tuning"] = session.course.shows_job_before
    verdict["advice"] = after_trials(judgement.verdict.advice, session.trials.values(), active)
    return Diagnosis(
        **verdict,
        pid=measured.pid,
        step_ns=stats,
        device_ns=stats if measured.facts is not None and measured.facts.is_asynchronous else None,
        phases_ns=shown_phases(measured),
        batch_probe=judgement.batch_probe,
        attach=attach,
        cost=msgspec.structs.replace(_cost(measured, attach, stats.mean, steps), cpu_ns=session.own_cpu_ns()),
        device=device_figures(measured.gpu),
        memory=memory_parts(measured),
        contention=contention(measured),
        job=measured.facts,
        anatomy=measured.anatomy,
        host=measured.host[-1] if measured.host else None,
        t_ns=measured.elapsed_ns,
        steps=steps,
        state=session.state.value,
        activity=session.activity,
        active=active,
        window=measured.profile,
        sweep=size_sweep(measured.sweep),
        collectives=rank_times(measured.collectives),
        ranks=None if compared is None else compared.ranks,
        straggler=None if compared is None else compared.straggler,
        final=session.state is State.ENDED,
    )


def _cost(measured: Measurements, attach: Attach, step_ns: int | None, steps: int | None) -> Cost:
    """What is always on, and all that training has stood still for, or run longer."""
    own = measured.cost
    always_ns = own.ns_per_step if own else None
    known = [part for part in (attach.pause_ns, own.one_off_ns if own else None) if part is not None]
    pauses_ns = sum(known) if known else None
    spent_ns = (always_ns or 0.0) * (steps or 0) + (pauses_ns or 0)
    return Cost(
        ns_per_step=None if always_ns is None else round(always_ns),
        share=always_ns / step_ns if always_ns is not None and step_ns else None,
        one_off_ns=pauses_ns,
        session_share=spent_ns / measured.elapsed_ns if spent_ns and measured.elapsed_ns else None,
    )


def device_figures(samples: Sequence[GpuSample]) -> dict[str, object] | None:
    """The last sample of the GPU by the names of its fields; None where there is none."""
    if not samples:
        return None
    figures: dict[str, object] = msgspec.to_builtins(samples[-1])
    del figures["t_ns"]
    return figures


MOST_OPERATORS = 12


def details(session: Session, tuning: TuningThread) -> Details:
    """The session at this moment, as a screen shows it; asked for about once a second."""
    findings = session.findings
    on = list(session.active.on.values())
    traced = findings.traced
    remedies, manual, later = _remedies(findings.facts, findings.cores_each, session.snapshot(), tuning.asked)
    widest = sorted(traced.by_op, key=lambda op: -op.kernel_ns) if traced is not None else []
    return Details(
        history=findings.history.history(findings.window.step_ns),
        active=on,
        remedies=remedies,
        manual=manual,
        later=later,
        operators=widest[:MOST_OPERATORS],
        recipe=recipe_now(on, tuning.tuned, findings.facts),
        tuned=tuning.tuned,
        paused=tuning.paused,
    )


def recipe_now(on: Sequence[ActiveRemedy], tuned: Tuning | None, facts: JobFacts | None) -> RecipeNow | None:
    """What is on as a recipe; with the tuning's evidence where that is exactly what it kept."""
    if not on:
        return None
    kept = None if tuned is None else recipe.from_tuning(tuned)
    if kept is not None and set(kept.remedies) == set(on):
        made = kept
    else:
        made = recipe.Recipe(match=recipe.match_of(facts), remedies=tuple(on))
    text = recipe.dump(made)
    try:
        recipe.parse(text)
    except AutobrrrError as error:
        return RecipeNow(text=text, problem=error.message)
    return RecipeNow(text=text)


def _remedies(
    facts: JobFacts | None, cores: int | None, judged: Diagnosis, asked: TuneRequest | None
) -> tuple[list[Advice], list[Advice], list[Advice]]:
    """What a tuning tries, what it tries only where it is told to, what no running job can be tried with."""
    if facts is None:
        return [], [], []
    allowed = allowed_classes(None if asked is None else asked.allow)
    only = None if asked is None else asked.only
    every: tuple[ExactnessClass, ...] = get_args(ExactnessClass)
    tried = candidates(facts=facts, cores=cores, verdict=judged, selection=Selection(allowed=every))
    usual = [each for each in tried if each.class_ in allowed and (not only or each.remedy in only)]
    names = {each.remedy for each in tried}
    unlisted = [each for each in judged.advice if each.remedy not in names]
    manual = [each for each in tried if each not in usual]
    manual += [each for each in unlisted if each.reach == "live"]
    return usual, manual, [each for each in unlisted if each.reach != "live"]
