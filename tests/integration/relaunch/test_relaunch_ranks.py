"""Trials of several ranks under torchrun: two live side by side, each ends as a whole."""

import sys
from pathlib import Path

import pytest

from autobrrr.errors import AutobrrrError
from autobrrr.relaunch.study.timed_turns import block
from autobrrr.relaunch.trial.live_trial import TrialLaunch
from support import relaunch, training
from support.day_cases import by_day

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("walled", by_day([False, True], bool))
def test_two_trials_of_two_ranks_run_in_turn_and_leave_nothing(walled: bool, tmp_path: Path) -> None:
    job = (str(training.JOBS / "ranks.py"), "--until", "never")
    command = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", *job)
    launched = TrialLaunch(command=command, environment=training.environment(tmp_path), folder=tmp_path)
    with relaunch.factory(tmp_path, launched, walled=walled) as stable:
        try:
            trials = [stable.start(), stable.start()]
        except AutobrrrError as refused:
            pytest.skip(f"no walls here: {refused}")
        for trial in trials:
            assert trial.warm_up(), trial.ending
            trial.pause()
        for trial in trials:
            assert (trial.witnesses.facts.rank, trial.witnesses.facts.world_size) == (0, 2)
            assert trial.samples == 32
            found = block(trial)
            assert len(found.steps) >= 4
            assert len(trial.family) >= 3
            assert (trial.taken().memory or 0) > 1 << 20
        for trial in trials:
            trial.close()
        assert relaunch.alive(tmp_path / "run") == []
