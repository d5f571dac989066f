"""`prove` on a command that trains in several processes: a launcher as a side."""

import shlex
import sys
from pathlib import Path

import pytest

from autobrrr.errors import EXIT_FAILED
from support import proof_verb, training

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.mark.nightly
def test_two_ranks_are_refused_by_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "user"
    folder.mkdir()
    job = (str(training.JOBS / "ranks.py"), "--steps", "40")
    word = shlex.join([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", *job])
    code, found, _ = proof_verb.proven(tmp_path, folder, "--before", word, "--after", word)
    assert code == EXIT_FAILED
    assert "2 processes" in found["error"]
