"""The account of a run holds whatever a script may train, and what its models are given by name."""

import os
import sys
from pathlib import Path

import pytest

from autobrrr.prove import work_rules
from autobrrr.prove.run_account import RunAccount
from support.processes import warm_python

pytestmark = pytest.mark.integration
RUN = """
import sys, torch
from torch import nn
from autobrrr.agent.audit.work_audit import WorkAudit
WorkAudit(torch, sys.argv[1] + "-0-1").begin()

class Own(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x=None, y=None):
        return torch.view_as_real(x @ self.weight) if self.weight.is_complex() else x @ self.weight

x, scale, kwargs = torch.ones(8, 4), 1.0, {}
model = nn.Linear(4, 4)
{change}
trained = [each for each in model.parameters() if each.requires_grad]
optimizer = torch.optim.SGD(trained, 0.1)
for _ in range(3):
    optimizer.zero_grad()
    (model(**kwargs) if kwargs else model(x)).pow(2).mean().mul(scale).backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    model(**kwargs) if kwargs else model(x)
"""
CHANGES = {
    "lazy": "model = nn.LazyLinear(4); model(x)",
    "sparse": "model = nn.EmbeddingBag(9, 4, sparse=True); x = torch.ones(8, 4, dtype=torch.long)",
    "complex": "model = Own(torch.ones(4, 4, dtype=torch.cfloat)); x = x.to(torch.cfloat)",
    "by name": "model = Own(torch.ones(4, 4)); kwargs = {'x': x}",
}


def account_of(script: str, file: Path) -> RunAccount:
    """What a script tells that is run to its end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = warm_python.start([sys.executable, "-c", script, str(file)], environment)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    found = RunAccount(file=file)
    found.look()
    return found


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_step_and_sample_is_counted(tmp_path: Path, change: str) -> None:
    found = account_of(RUN.replace("{change}", change), tmp_path / "a")
    assert found.noted("broken") == []
    assert [(each.step, each.samples) for each in found.steps] == [(0, first_samples(change)), (1, 8), (2, 8)]
    assert found.evaluated_last == 8


def first_samples(change: str) -> int:
    """The lazy one was called once before its first step."""
    return 16 if "Lazy" in change else 8


RECALLS = """
import sys, torch
from torch import nn
from autobrrr.agent.audit.work_audit import WorkAudit
WorkAudit(torch, sys.argv[1] + "-0-1").begin()

class Recalls(nn.Module):
    def __init__(self):
        super().__init__()
        self.ask, self.say = nn.Linear(32, 32), nn.Linear(32, 4)

    def forward(self, x, memory):
        seen = torch.bmm(self.ask(x).unsqueeze(1), memory.transpose(1, 2)).softmax(-1)
        return self.say(torch.bmm(seen, memory).squeeze(1))

torch.manual_seed(0)
model = Recalls()
{change}
x, memory = torch.randn(16, 32), torch.randn(16, 256, 32)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(5):
    optimizer.zero_grad()
    model(x, memory).pow(2).mean().backward()
    optimizer.step()
"""


def test_operators_that_a_compiled_kernel_stands_for_are_none_that_were_left_out(tmp_path: Path) -> None:
    sides = [
        account_of(RECALLS.replace("{change}", each), tmp_path / name)
        for name, each in (("before", ""), ("after", "model.compile()"))
    ]
    codes = {each.code.value for each in work_rules.refusals(*sides, "changes-training")}
    assert "fewer_operations" not in codes
