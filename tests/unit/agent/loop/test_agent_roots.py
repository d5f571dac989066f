"""The search for root modules: one model after the other, beside torch.compile, and where none is trained."""

from _thread import get_ident
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_modules

from autobrrr.agent.live_torch import compiled_code
from autobrrr.agent.live_torch.compiled_code import CompiledCheck, compiles_now
from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.loop import root_modules
from autobrrr.agent.loop.root_modules import RootModules
from autobrrr.agent.loop.step_marks import FallbackMarks
from autobrrr.agent.loop.train_loop import TrainLoop
from autobrrr.agent.recipe_startup import LAST_STEP, RecipeStartup
from autobrrr.agent.remedies.active_remedies import ActiveRemedies
from autobrrr.agent.remedies.registry import Refused, Undo
from support.agent.remedies import remedy

COMPILE = torch.compile
HOOKS = torch_modules._global_forward_pre_hooks


@pytest.fixture(autouse=True)
def without_a_name(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In a job the agent's modules are not to be imported."""
    monkeypatch.setitem(vars(root_modules), "__name__", "_autobrrr_0")
    HOOKS.clear()  # a plan of another test stays until its process ends
    yield
    HOOKS.clear()


class Net(nn.Module):
    """dynamo leaves out what is torch's own, if it is the outermost."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x))


def search_for(job: Job) -> RootModules:
    failed: list[BaseException] = []
    search = RootModules(job, failed.append)
    search.begin(0)
    assert search.put_on(compiled=False)
    return search


def as_function(model: nn.Module) -> Callable[..., torch.Tensor]:
    @torch.compile(backend="eager", fullgraph=True)
    def call(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = model(x)
        return found

    return call


def in_place(model: nn.Module) -> Callable[..., torch.Tensor]:
    model.compile(backend="eager", fullgraph=True)
    return model


WAYS: dict[str, Callable[[nn.Module], Callable[..., torch.Tensor]]] = {
    "a module": lambda model: torch.compile(model, backend="eager", fullgraph=True),
    "a function": as_function,
    "in place": in_place,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_search_ends_where_something_is_compiled(way: str) -> None:
    search = search_for(Job(torch))
    call = WAYS[way](Net())
    assert (search.compiles, dict(HOOKS)) == (True, {})
    assert torch.compile is COMPILE
    call(torch.ones(1, 2))
    search.step_ended()
    assert not search.put_on(compiled=False)


@pytest.mark.parametrize("way", WAYS)
def test_what_was_compiled_before_the_search_runs_in_one_graph_under_it(way: str) -> None:
    call = WAYS[way](Net())
    search = search_for(Job(torch))
    call(torch.ones(1, 2)).sum().backward()
    assert torch._dynamo.utils.counters["graph_break"] == {}
    search.step_ended()
    assert dict(HOOKS) == {}


def test_code_whose_first_graph_is_being_traced_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., object]:
        seen.append(CompiledCheck().compiled([]))
        return graph.forward

    check = CompiledCheck()
    assert not check.compiled([])
    monkeypatch.setattr(compiled_code, "compiled_graphs", lambda: 0)
    torch.compile(Net(), backend=backend)(torch.ones(1, 2))
    assert seen == [True]
    check.forget_ours()
    assert not check.compiled([])


def test_a_thread_compiles_while_a_forward_or_a_backward_becomes_code_and_not_while_that_runs() -> None:
    seen: list[tuple[str, bool]] = []
    me = get_ident()

    def backend(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., object]:
        seen.append(("traced", compiles_now(me)))
        return lambda *args: (seen.append(("runs", compiles_now(me))), graph.forward(*args))[1]

    def compile_fx_inner() -> None:  # as inductor calls it, from a backward's first run too
        seen.append(("made", compiles_now(me)))

    seen.append(("before", compiles_now(me)))
    call = torch.compile(Net(), backend=backend)
    call(torch.ones(1, 2))
    call(torch.ones(1, 2))
    compile_fx_inner()
    assert seen == [("before", False), ("traced", True), ("runs", False), ("runs", False), ("made", True)]
    assert not compiles_now(0)


@pytest.fixture
def scouts() -> Iterator[FallbackMarks]:
    job = Job(torch)
    made = FallbackMarks(torch, job, lambda source, ident: None, lambda error: None)
    yield made
    made.keep_only(None)
    assert torch.compile is COMPILE


def test_scouts_leave_the_modules_where_something_is_compiled(scouts: FallbackMarks) -> None:
    model = Net()
    scouts.put_on_rest(compiled=False)
    model(torch.ones(1, 2))
    scouts.put_on_rest(compiled=False)
    assert bool(scouts._watches)
    call = torch.compile(model, backend="eager", fullgraph=True)
    assert not bool(scouts._watches)
    scouts.put_on_rest(compiled=False)
    assert (bool(scouts._watches), dict(HOOKS)) == (False, {})
    call(torch.ones(1, 2))


class Waits:
    """A recipe whose only remedy waits for the model's first call."""

    def __init__(self) -> None:
        self.tries = 0
        waiting = remedy("waiting", self._apply)
        boot: dict[str, object] = {"plan": {"remedies": [{"name": "waiting"}]}}
        self.plan = RecipeStartup(torch, ActiveRemedies({"waiting": waiting}), boot)

    def _apply(self, job: Job, options: object) -> Undo:
        self.tries += 1
        raise Refused("no module has been called yet")


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecipeStartup]:
    step = vars(torch.optim.Optimizer)["_optimizer_step_code"]
    backward = torch.autograd.backward
    monkeypatch.setattr("autobrrr.agent.recipe_startup.atexit.register", lambda *_: None)
    made = Waits().plan
    made.begin()
    yield made
    made._close()
    torch.optim.Optimizer._optimizer_step_code = step  # type: ignore[method-assign]
    torch.autograd.backward = backward


def test_a_recipe_looks_for_modules_in_one_step_of_training(plan: RecipeStartup) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    on = []
    for _ in range(LAST_STEP + 2):
        model(torch.ones(1, 2)).sum().backward()
        on.append(len(HOOKS))
        optimizer.step()
    assert on == [0, 1] + [0] * LAST_STEP
    assert plan._job.roots == [model]
    assert torch.compile is COMPILE


def test_a_loop_of_bare_tensors_settles_and_its_steps_are_sampled(loop: TrainLoop) -> None:
    weight = torch.ones(2, requires_grad=True)
    for _ in range(200):
        (weight * weight).sum().backward()
    assert loop.steps.source == "backward"
    assert not loop.roots.searching
    assert loop.sampled_steps > 0


FOLDS, STEPS = root_modules.SEARCHES + 1, 100


def trained(loop: TrainLoop) -> torch.nn.Module:
    """One model, each of whose steps is sampled."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        loop.bursts.ask(4, 4, 0, budget=1e9)  # each step is sampled
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    return model


def test_each_model_that_a_job_trains_one_after_the_other_is_found_and_timed(loop: TrainLoop) -> None:
    """A model often lies where the one before it lay, and is another all the same."""
    found = []
    for _ in range(2 * FOLDS):
        model = trained(loop)
        found.append((loop.job.roots == [model], loop.last_sample[1] > 0))
        del model  # before the next is made
    assert found == [(True, True)] * len(found)


def test_of_two_graphs_in_a_step_the_first_marks_it_before_it_is_replayed() -> None:
    seen: list[str] = []

    class CUDAGraph:
        def __init__(self, name: str) -> None:
            self.name = name

        def replay(self) -> None:
            seen.append(self.name)

    plain = CUDAGraph.__dict__["replay"]
    fake = SimpleNamespace(cuda=SimpleNamespace(CUDAGraph=CUDAGraph))
    scouts = FallbackMarks(fake, Job(torch), lambda source, _: seen.append(source), lambda error: None)  # type: ignore[arg-type]
    scouts.put_on_rest(compiled=True)
    whole, metric = CUDAGraph("whole"), CUDAGraph("metric")
    for _ in range(8):
        whole.replay()
        metric.replay()
    assert seen == ["replay", "whole", "metric"] * 8
    assert scouts.choice() == "replay"
    scouts.keep_only(None)
    assert CUDAGraph.__dict__["replay"] is plain
