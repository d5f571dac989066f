"""Fresh processes that take turns: how fast one is against the other, on a script that starts at once."""

import math
from pathlib import Path

import pytest

from autobrrr.relaunch.study.command_refusals import Unmeasurable
from autobrrr.relaunch.study.timed_turns import TimedTurns, with_twin
from autobrrr.relaunch.trial.live_trial import Limits
from autobrrr.relaunch.trial.trial_factory import TrialFactory
from support import relaunch

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def turns(tmp_path: Path, *flags: str) -> tuple[TrialFactory, TimedTurns]:
    file = relaunch.script(tmp_path / "user")
    factory = TrialFactory(
        command=(),
        folder=file.parent,
        environment=relaunch.environment(),
        runtime=tmp_path / "r",
        limits=Limits(first_step_s=40.0, silence_s=4.0, settle_s=4.0),
    )
    before, after = relaunch.launch(file), relaunch.launch(file, *flags)
    return factory, TimedTurns(with_twin(factory, before, after))


def test_twice_as_fast_is_told_and_two_of_a_kind_are_alike(tmp_path: Path) -> None:
    factory, found = turns(tmp_path, "--slowness", "0.5")
    with factory:
        found.start()
    (start,) = found.results
    assert math.exp(start.gain) == pytest.approx(2.0, rel=0.25)
    assert start.luck is not None
    assert abs(start.luck) < 0.2
    assert found.pairs >= 20
    assert found.whole_ratio == pytest.approx(2.0, rel=0.35)
    assert list((tmp_path / "user").iterdir()) != []


def test_a_side_that_ends_before_it_can_be_timed_is_said(tmp_path: Path) -> None:
    factory, found = turns(tmp_path, "--steps", "3")
    with factory, pytest.raises(Unmeasurable, match="after: it ended"):
        found.start()


def test_a_side_that_fails_is_said(tmp_path: Path) -> None:
    factory, found = turns(tmp_path, "--most", "1")
    with factory, pytest.raises(Unmeasurable, match=r"after: .*memory"):
        found.start()


@pytest.mark.nightly
def test_a_side_that_hangs_is_given_up_and_said(tmp_path: Path) -> None:
    factory, found = turns(tmp_path, "--hang-at", "250")
    with factory, pytest.raises(Unmeasurable, match=r"after: no (training step|step for)"):
        found.start()
