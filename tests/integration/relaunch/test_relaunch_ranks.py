"""Trials of several ranks under torchrun: two live side by side, each ends as a whole."""

import sys
from pathlib import Path

import pytest

from autobrrr.errors import AutobrrrError
from autobrrr.relaunch.study.timed_turns import block
from autobrrr.relaunch.trial.trial_launch import TrialLaunch
from support import relaunch, training

pytestmark = pytest.mark.integration
JOB = """
import torch
from torch import distributed
distributed.init_process_group("gloo")
torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
while True:
    optimizer.zero_grad()
    model(torch.randn(6, 64)).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("walled", [False, True])
def test_two_trials_of_two_ranks_run_in_turn_and_leave_nothing(walled: bool, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    command = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "job.py")
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
            assert trial.samples == 12
            found = block(trial)
            assert len(found.steps) >= 4
            assert len(trial.family) >= 3
            assert (trial.taken().memory or 0) > 1 << 20
        for trial in trials:
            trial.close()
        assert relaunch.alive(tmp_path / "run") == []
