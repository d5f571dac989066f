"""What a job compiles, traces or exports while something of ours is on is what it would be without us."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from autobrrr.agent.live_torch.dispatch_modes import dispatch_mode
from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.live_torch.patches import take_off_all
from autobrrr.agent.loop.root_modules import RootModules
from autobrrr.agent.loop.step_hook import Hot
from autobrrr.agent.loop.step_marks import Marks
from support.agent import fail
from support.training import ran

ONES = torch.ones(2, 4)
GRAPHS = torch._dynamo.utils.counters


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line, self.frozen = nn.Linear(4, 4), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.frozen.eval()
        out: torch.Tensor = self.frozen(self.line(x)).relu()
        return out


def compiled(model: nn.Module) -> object:
    return torch.compile(model, fullgraph=True, backend="eager")(ONES)


def function(model: nn.Module) -> object:
    return torch.compile(lambda x: model(x) + 1, fullgraph=True, backend="eager")(ONES)


def condition(model: nn.Module) -> object:
    return torch.cond(ONES.sum() > 0, lambda x: x + 1, lambda x: x - 1, (ONES,))


def traced(model: nn.Module) -> object:
    return torch.jit.trace(model, ONES)(ONES)


def traced_by_name(model: nn.Module) -> object:
    return torch.jit.trace_module(model, {"forward": ONES})(ONES)


def optimized(model: nn.Module) -> object:
    return torch._dynamo.optimize("eager", nopython=True)(model)(ONES)


def exported(model: nn.Module) -> object:
    return torch.export.export(model, (ONES,), strict=True).module()(ONES)


WAYS: list[Callable[[nn.Module], object]] = [
    compiled,
    function,
    condition,
    traced,
    traced_by_name,
    optimized,
    exported,
]


@pytest.mark.parametrize("way", WAYS)
def test_under_a_mode_of_ours_the_job_compiles_as_without(way: Callable[[nn.Module], object]) -> None:
    model = Net()
    wanted, graphs = way(model), GRAPHS["stats"]["unique_graphs"]
    torch._dynamo.reset()
    GRAPHS.clear()
    with dispatch_mode(torch, lambda operator, args, kwargs: operator(*args, **kwargs)):
        assert torch.equal(way(model), wanted)  # type: ignore[arg-type]
    assert GRAPHS["stats"]["unique_graphs"] == graphs


def test_compiled_code_that_calls_eval_is_compiled_in_one_graph_while_a_session_is_on() -> None:
    patches = Marks(torch, Hot(0), lambda _: None, fail).put_on()
    try:
        torch.compile(Net(), fullgraph=True, backend="eager")(ONES)
    finally:
        take_off_all(patches)
    assert GRAPHS["stats"]["unique_graphs"] == 1


AUDITED = """
import sys, torch
from autobrrr.agent.audit.work_audit import WorkAudit
WorkAudit(torch, sys.argv[1]).begin()
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
step = torch.compile(lambda x: model(x).sum(), fullgraph=True, backend="eager")
whole = torch.compile(model, fullgraph=True, backend="eager")
for _ in range(3):
    (step(torch.ones(8, 4)) + whole(torch.ones(8, 4)).sum()).backward()
    optimizer.step()
"""


@pytest.mark.integration
def test_a_script_that_compiles_in_one_graph_does_so_while_it_is_audited(tmp_path: Path) -> None:
    account = tmp_path / "account"
    done = ran([sys.executable, "-c", AUDITED, str(account)])
    assert done.returncode == 0, done.stderr
    assert "broken" not in account.read_text()


def test_a_model_is_exported_while_root_modules_are_looked_for() -> None:
    search = RootModules(Job(torch), fail)
    search.begin(0)
    assert search.put_on(compiled=False)
    try:
        exported(Net())
    finally:
        search.stop()
