"""How long a step took, as `run` says it, where two optimizers end one: sparse rows, dense weights."""

import sys
from pathlib import Path

import pytest

from support.training import autobrrr

pytestmark = pytest.mark.integration

STEPS = 40
BOTH = f"""
import time, torch
rows, model = torch.nn.Embedding(50, 4, sparse=True), torch.nn.Linear(4, 1)
sparse, dense = torch.optim.SparseAdam(rows.parameters()), torch.optim.Adam(model.parameters())
for _ in range({STEPS}):
    sparse.zero_grad(), dense.zero_grad()
    model(rows(torch.randint(0, 50, (8,)))).square().mean().backward()
    time.sleep(0.01)
    sparse.step()
    dense.step()
"""


def test_a_step_of_two_optimizers_is_one_step(tmp_path: Path) -> None:
    order = tmp_path / "r.toml"
    order.write_text('schema = 1\n[remedies]\n"gc.freeze" = true\n')
    done = autobrrr(tmp_path, "run", "--json", "--recipe", str(order), "--", sys.executable, "-c", BOTH)
    assert done.code == 0, done.stderr
    assert done.json["step_ns"]["count"] <= STEPS
    assert done.json["step_ns"]["median"] >= 10_000_000
