"""What a job compiles, traces or exports while something of ours is on is what it would be without us."""

from __future__ import annotations

import subprocess
import sys
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import torch
from torch import nn

from autobrrr.agent.audit import tensor_digests
from autobrrr.agent.live_torch.dispatch_modes import dispatch_mode
from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.live_torch.patches import take_off_all
from autobrrr.agent.loop.root_modules import RootSearch
from autobrrr.agent.loop.skipped_steps import Marks
from autobrrr.agent.loop.step_hook import Hot
from autobrrr.agent.phases.batch_shapes import batch_size, token_count
from autobrrr.agent.ranks.shared_log import RegisterLost, SharedLog

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


def fail(error: BaseException) -> None:
    raise error


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch._dynamo.reset()
    GRAPHS.clear()
    yield
    torch._dynamo.reset()
    GRAPHS.clear()


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


class Made(Mapping[str, object]):
    """Makes what it holds as it is read."""

    def __init__(self) -> None:
        self.made = 0

    @property
    def shape(self) -> tuple[int, ...]:
        self.made += 1
        return (8, 4)

    def __getitem__(self, name: str) -> object:
        self.made += 1
        return torch.ones(8, 4)

    def __iter__(self) -> Iterator[str]:
        return iter(("x",))

    def __len__(self) -> int:
        return 1


class MadeList(list[object]):
    made = 0

    def __getitem__(self, place: object) -> object:
        self.made += 1
        return super().__getitem__(place)  # type: ignore[call-overload]


class MadeDict(UserDict[str, object]):
    made = 0

    def __getitem__(self, name: str) -> object:
        self.made += 1
        return super().__getitem__(name)


def test_what_a_batch_makes_as_it_is_read_is_not_made_for_its_size() -> None:
    tokens = torch.ones(8, 4, dtype=torch.int64)
    batches = Made(), MadeList([tokens]), MadeDict(x=tokens)
    assert [batch_size([each]) for each in batches] == [-1, 8, 8]
    assert [token_count([each]) for each in batches] == [-1, 32, 32]
    assert [each.made for each in batches] == [0, 0, 0]


def test_compiled_code_that_calls_eval_is_compiled_in_one_graph_while_a_session_is_on() -> None:
    patches = Marks(torch, Hot(0), lambda _: None, fail).put_on()
    try:
        torch.compile(Net(), fullgraph=True, backend="eager")(ONES)
    finally:
        take_off_all(patches)
    assert GRAPHS["stats"]["unique_graphs"] == 1


def test_a_log_of_ranks_that_was_left_can_not_be_asked() -> None:
    log = SharedLog.create()
    log.leave()
    with pytest.raises(RegisterLost):
        log.put("1/outcome", "drop")


def test_gradients_that_list_some_rows_count_as_dense_ones() -> None:
    rows = torch.sparse_coo_tensor(torch.tensor([[1, 1, 3]]), torch.arange(6.0).reshape(3, 2), (4, 2))
    assert tensor_digests.norm(torch, [rows]) == tensor_digests.norm(torch, [rows.to_dense()])
    assert tensor_digests.projections(torch, [rows]) == tensor_digests.projections(torch, [rows.to_dense()])
    seen: list[object] = []
    torch.func.vmap(lambda x: seen.append(tensor_digests.norm(torch, [x])) or x)(ONES)
    assert seen == [None]


def test_digests_are_the_same_wherever_tensors_are_made_by_default() -> None:
    wanted = tensor_digests.projections(torch, [ONES])
    with torch.device("meta"):
        assert tensor_digests.projections(torch, [ONES]) == wanted


AUDITED = """
import sys, torch
from autobrrr.agent.audit.work_audit import WorkAudit
WorkAudit(torch, sys.argv[1], 0).begin()
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
    done = subprocess.run(
        [sys.executable, "-c", AUDITED, str(account)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "broken" not in account.read_text()


def test_a_model_is_exported_while_root_modules_are_looked_for() -> None:
    search = RootSearch(Job(torch), 0, fail)
    search.put_on()
    try:
        exported(Net())
    finally:
        search.take_off()
