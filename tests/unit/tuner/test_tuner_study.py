"""Which candidate comes next on a running job."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from autobrrr.records import from_registry
from autobrrr.tuner.tuning_study import TuningStudy

FUSED, FREEZE = from_registry("optimizer.fused"), from_registry("gc.freeze")
ONE = from_registry("threads.intra_op", {"threads": 1})


def asked(study: TuningStudy) -> list[str]:
    """Ask for all."""
    order = []
    while (one := study.ask()) is not None:
        order.append(one.label)
        study.tell(0.1)
    return order


def test_candidates_come_as_they_are_listed() -> None:
    listed = [FREEZE, msgspec.structs.replace(FUSED, expected=1.2), ONE]
    study = TuningStudy(listed)
    assert study.waiting == 3
    assert asked(study) == ["gc.freeze", "optimizer.fused", "threads.intra_op(threads=1)"]
    assert study.waiting == 0
    assert asked(TuningStudy([])) == []


def test_who_is_to_come_again_is_asked_once_more() -> None:
    study = TuningStudy([FUSED])
    assert asked(study) == ["optimizer.fused"]
    study.again(FUSED)
    assert asked(study) == ["optimizer.fused"]


def test_optuna_comes_with_the_first_study() -> None:
    code = (
        "import sys; from autobrrr.tuner import live_search; from autobrrr.sidecar import daemon;"
        "assert 'optuna' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
