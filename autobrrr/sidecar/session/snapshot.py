"""One snapshot of a session, as every client sees it: the verdict dressed with the figures.

In: measurements and the last judgement. Out: `records.Diagnosis`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from autobrrr.diagnosis.measurements import Measurements, step_stats
from autobrrr.diagnosis.models.memory_parts import memory_parts
from autobrrr.diagnosis.models.shares import shown_phases
from autobrrr.diagnosis.models.size_sweep import size_sweep
from autobrrr.diagnosis.ranks.rank_times import rank_times
from autobrrr.diagnosis.signals.busy_machine import contention
from autobrrr.diagnosis.verdict.judge import Judgement
from autobrrr.records import Attach, Cost, Diagnosis, GpuSample, RanksCompared, Trial
from autobrrr.records.tuning_records import after_trials
from autobrrr.sidecar.session.session_states import State


def snapshot(
    measured: Measurements,
    judgement: Judgement,
    *,
    attach: Attach,
    steps: int | None,
    state: State,
    activity: str,
    active: list[str],
    own_cpu_ns: int,
    compared: RanksCompared | None = None,
    trials: Iterable[Trial] = (),
) -> Diagnosis:
    """The session at this moment.

    Args:
        steps: Steps since attach; None where no step can be seen.
        active: Names of the remedies that are on.
        own_cpu_ns: CPU time of the session's own processes.
        compared: What came of the last comparison of the job's ranks.
        trials: What remedies have brought, as far as they were tried.
    """
    stats = step_stats(measured.step_ns)
    verdict = msgspec.structs.asdict(judgement.verdict)
    verdict["advice"] = after_trials(judgement.verdict.advice, trials, active)
    return Diagnosis(
        **verdict,
        pid=measured.pid,
        step_ns=stats,
        device_ns=stats if measured.facts is not None and measured.facts.is_asynchronous else None,
        phases_ns=shown_phases(measured),
        batch_probe=judgement.batch_probe,
        attach=attach,
        cost=msgspec.structs.replace(_cost(measured, attach, stats.mean, steps), cpu_ns=own_cpu_ns),
        device=device_figures(measured.gpu),
        memory=memory_parts(measured),
        contention=contention(measured),
        job=measured.facts,
        anatomy=measured.anatomy,
        host=measured.host[-1] if measured.host else None,
        t_ns=measured.elapsed_ns,
        steps=steps,
        state=state.value,
        activity=activity,
        active=active,
        window=measured.profile,
        sweep=size_sweep(measured.sweep),
        collectives=rank_times(measured.collectives),
        ranks=None if compared is None else compared.ranks,
        straggler=None if compared is None else compared.straggler,
        final=state is State.ENDED,
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
