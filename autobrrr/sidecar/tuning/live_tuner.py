"""The tuner, and its guard, as a session calls it: on the tuner's thread, on the session's bench.

What searches is heavy, so it is imported when somebody tunes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from autobrrr.records import Diagnosis, ExactnessClass, Reverted, Trial, TuneProgress, Tuning
from autobrrr.records.tuning_records import TuneRequest
from autobrrr.records.wire_answers import ActiveRemedy
from autobrrr.sidecar.tuning.live_bench import LiveBench
from autobrrr.tuner.arm_switch import ArmRemedy, ArmSwitch
from autobrrr.tuner.candidate_space import Choice, allowed_classes, allows_unproven, class_named
from autobrrr.tuner.tune_settings import TuneSettings


def tune(
    bench: LiveBench,
    request: TuneRequest,
    judged: Diagnosis,
    on_progress: Callable[[TuneProgress], None],
    on_trial: Callable[[Trial], None],
) -> Tuning:
    """Tune the job. Raises what `live_search.tune` raises."""
    from autobrrr.tuner import live_search

    return live_search.tune(
        bench,
        verdict=judged,
        settings=_settings(request),
        on_progress=on_progress,
        on_trial=on_trial,
        already=[_kept(applied) for applied in bench.active()],
        standing=[_kept(applied) for applied in bench.standing()],
    )


def check(bench: LiveBench, step_ns: float) -> list[Reverted]:
    """Whether what is on still pays; see `undo_losses`."""
    from autobrrr.tuner.gain_guard import undo_losses

    board = ArmSwitch(bench, get_args(ExactnessClass), [_kept(applied) for applied in bench.active()])
    return undo_losses(bench, board, step_ns)


def _settings(request: TuneRequest) -> TuneSettings:
    usual = TuneSettings()
    return TuneSettings(
        budget_ns=usual.budget_ns if request.for_s is None else int(request.for_s * 1e9),
        spent_ns=int(request.spent_s * 1e9),
        horizon_ns=usual.horizon_ns if request.horizon_s is None else int(request.horizon_s * 1e9),
        max_loss=usual.max_loss if request.max_loss is None else request.max_loss,
        allowed=allowed_classes(request.allow),
        unproven=allows_unproven(request.allow),
        only=tuple(request.only or ()),
    )


def _kept(applied: ActiveRemedy) -> ArmRemedy:
    choice = Choice(remedy=applied.remedy, options=tuple(sorted(applied.options.items())))
    return ArmRemedy(choice=choice, token=applied.token, cls=class_named(applied.class_))
