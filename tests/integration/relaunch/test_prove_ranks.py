"""`prove` on a command that trains in several processes: a launcher as a side."""

import shlex
import sys
from pathlib import Path

import pytest

from autobrrr.errors import EXIT_FAILED
from support import proof_verb

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
JOB = """
import torch
from torch import distributed
distributed.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(distributed.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
for step in range(40):
    optimizer.zero_grad()
    model(torch.randn(6, 64)).square().mean().backward()
    optimizer.step()
distributed.destroy_process_group()
"""


@pytest.mark.nightly
def test_two_ranks_are_refused_by_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "user"
    folder.mkdir()
    (folder / "job.py").write_text(JOB)
    word = shlex.join([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "job.py"])
    code, found, _ = proof_verb.proven(tmp_path, folder, "--before", word, "--after", word)
    assert code == EXIT_FAILED
    assert "2 processes" in found["error"]
