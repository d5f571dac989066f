"""Commands that no study can be made of: what trains is out of reach, by its words or as it is seen."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from autobrrr.errors import UsageError
from autobrrr.relaunch.study.command_refusals import refuse_elsewhere
from autobrrr.relaunch.trial.trial_agents import TrialAgents


@pytest.mark.parametrize(
    "command",
    [
        "srun python train.py",
        "/opt/slurm/bin/srun -n 2 python train.py",
        "env A=1 srun python train.py --x",
        "numactl -N 0 srun python -m package.train",
    ],
)
def test_a_command_by_which_slurm_starts_the_script_is_refused_with_a_way_out(command: str) -> None:
    with pytest.raises(UsageError, match="srun: a daemon starts its processes") as refused:
        refuse_elsewhere(command.split())
    assert "torchrun" in refused.value.hint


def test_a_python_that_no_agent_comes_into_is_refused_at_once() -> None:
    for command in (
        "python -I train.py",
        "nice -n 5 python -Em train",
        "env PYTHONPATH=src python train.py",
        "env -i torchrun train.py",
    ):
        with pytest.raises(UsageError, match="agent to see steps"):
            refuse_elsewhere(command.split())
    refuse_elsewhere(["python", "train.py", "-I"])


@pytest.mark.parametrize(
    "command", ["python train.py --launcher srun", "torchrun train.py", "python -m train srun", "train"]
)
def test_a_word_of_the_script_s_own_is_not_taken_for_a_launcher(command: str) -> None:
    refuse_elsewhere(command.split())


def test_a_witness_knows_its_process_from_the_kernel_not_from_a_name(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door, socket.socket(socket.AF_UNIX) as link:
        door.bind(str(tmp_path / "agent-1-1.sock"))
        door.listen()
        link.connect(str(tmp_path / "agent-1-1.sock"))
        assert TrialAgents(link).pid == os.getpid()
