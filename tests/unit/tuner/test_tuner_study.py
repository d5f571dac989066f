"""Which candidate comes next on a running job, and how much of the time it may take."""

from __future__ import annotations

import subprocess
import sys

from autobrrr.tuner.candidate_space import Candidate, Choice
from autobrrr.tuner.tuning_study import MOST_OF_TIME, TuningStudy

FUSED, FREEZE = Choice(remedy="optimizer.fused"), Choice(remedy="gc.freeze")
COMPILE = Choice(remedy="compile.default")
ONE = Choice(remedy="threads.intra_op", options=(("threads", 1),))
HORIZON_S = 1800.0


def candidate(choice: Choice, predicted: float | None = None) -> Candidate:
    return Candidate(choice=choice, predicted=predicted, cls="bitwise")


def asked(study: TuningStudy) -> list[str]:
    """Ask for all."""
    order = []
    while (one := study.ask()) is not None:
        order.append(one.choice.label)
        study.tell(0.1)
    return order


def test_the_largest_gain_comes_first_and_what_has_no_prediction_as_listed() -> None:
    listed = [candidate(FREEZE), candidate(FUSED, 1.2), candidate(COMPILE, 1.3), candidate(ONE)]
    assert asked(TuningStudy(listed, HORIZON_S)) == [
        "compile.default",
        "optimizer.fused",
        "gc.freeze",
        "threads.intra_op(threads=1)",
    ]


def test_the_shorter_the_horizon_the_later_comes_what_pauses_training() -> None:
    listed = [candidate(COMPILE, 1.3), candidate(FUSED, 1.2)]
    assert asked(TuningStudy(listed, HORIZON_S))[0] == "compile.default"
    assert asked(TuningStudy(listed, 60.0))[0] == "optimizer.fused"


def test_who_is_to_come_again_is_asked_once_more() -> None:
    study = TuningStudy([candidate(FUSED)], HORIZON_S)
    assert asked(study) == ["optimizer.fused"]
    study.again(candidate(FUSED))
    assert asked(study) == ["optimizer.fused"]


def test_what_promises_more_may_take_more_of_the_time_but_never_most_of_it() -> None:
    names = ("gc.freeze", "optimizer.foreach", "layout.channels_last", "attention.sdpa", "gc.threshold")
    usual = [candidate(Choice(remedy=name)) for name in names]
    promising = candidate(Choice(remedy="optimizer.fused"), 1.3)
    study = TuningStudy([*usual, promising], HORIZON_S)
    assert study.ask() == promising
    assert study.share_of_time(promising) == MOST_OF_TIME
    second = study.ask()
    assert second is not None
    assert study.share_of_time(second) == 1 / len(usual)
    while (last := study.ask()) is not None:
        alone = study.share_of_time(last)
    assert alone == 1


def test_optuna_comes_with_the_first_study() -> None:
    code = (
        "import sys; from autobrrr.tuner import live_search; from autobrrr.sidecar import daemon;"
        "assert 'optuna' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
