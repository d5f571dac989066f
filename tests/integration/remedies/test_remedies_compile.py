"""Compiling live modules: rehearsed before training meets it, eager wherever it went wrong, all put back."""

from __future__ import annotations

import copy
import functools
import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import nn

from autobrrr.injected.live_torch.compiled_code import CompiledCheck, compiled_graphs, frames_begun
from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.compile import compile_models as compile_module
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.model_calls.backward_watch import ENOUGH
from autobrrr.injected.remedies.model_calls.compiled_call import FEWEST_CALLS, STORM
from autobrrr.injected.remedies.model_calls.dynamo_footprint import IS_TO_WRAP, WRAPPED
from autobrrr.injected.remedies.registry import Refused, WatchedUndo
from support.injected.remedies import Training, loop_of, picture, training
from support.injected.remedy_models import Branching

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("first_order", "untimed"),
]

DEFAULT, REGIONAL = REGISTRY["compile.default"], REGISTRY["compile.regional"]


@pytest.fixture(autouse=True)
def nothing_stays_compiled(one_thread: None) -> Iterator[None]:
    yield
    compile_module._release(torch)
    torch._dynamo.utils.counters.clear()


def switched_on(loop: Training, **options: object) -> WatchedUndo:
    undo = DEFAULT.apply(loop.job, DEFAULT.option_values(options))
    assert isinstance(undo, WatchedUndo)
    return undo


def trained(loop: Training, steps: int, *, seed: int = 5) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    loop.train(steps)
    return [each.detach().clone() for each in loop.model.parameters()]


class Scaled(nn.Module):
    """Reads a number of its own in each forward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 4)
        self.scale = 1.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.inner(x)) * self.scale


class Printing(Scaled):
    """Tells the world."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("forward")
        return super().forward(x)


class Counting(Scaled):
    """Remembers how often it was called."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale = self.scale + 1
        return super().forward(x)


def test_dropout_draws_the_same_numbers_compiled_and_the_session_s_end_leaves_no_trace() -> None:
    plain, cured = training(), training()
    before = picture(cured)
    init, validate = nn.Module.__init__, torch.distributions.Distribution._validate_args
    threads, depth = {thread.name for thread in threading.enumerate()}, sys.getrecursionlimit()
    undo = switched_on(cured)
    weights = list(zip(trained(cured, 6), trained(plain, 6), strict=True))
    assert undo.trouble() is None
    assert compiled_graphs() == 1
    assert undo.cls is None
    assert picture(cured)["random"] == picture(plain)["random"]
    for mine, theirs in weights:
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    undo()
    DEFAULT.release(torch)  # type: ignore[misc]
    assert compiled_graphs() == 0
    after = picture(cured)
    assert {name: after[name] for name in ("modules", "marks", "environment", "children", "class")} == {
        name: before[name] for name in ("modules", "marks", "environment", "children", "class")
    }
    assert nn.Module.__init__ is init
    assert torch.distributions.Distribution._validate_args is validate
    assert {thread.name for thread in threading.enumerate()} <= threads
    assert sys.getrecursionlimit() == depth


def test_evaluation_and_rare_shapes_stay_eager_and_switching_again_compiles_nothing() -> None:
    loop = training()
    undo = switched_on(loop)
    loop.train(ENOUGH + 1)
    compiled = compiled_graphs()
    loop.model.eval()
    with torch.no_grad():
        loop.model(torch.randn(5, 16))
    loop.model.train()
    for _ in range(FEWEST_CALLS - 1):
        loop.model(torch.randn(3, 16)).sum().backward()
    undo()
    again = switched_on(loop)
    loop.train(2)
    assert compiled_graphs() == compiled == 1
    loop.model(torch.randn(3, 16)).sum().backward()  # it keeps coming
    assert compiled_graphs() == 2
    assert again.trouble() is None
    again()


def test_a_released_session_leaves_the_job_s_own_graphs_in_the_count_and_the_next_may_compile() -> None:
    loop = loop_of(lambda: nn.Sequential(nn.Linear(16, 4), nn.Tanh()))
    undo = switched_on(loop)
    loop.train(ENOUGH + 1)
    torch.compile(lambda x: x.sin() + 1, backend="eager")(torch.ones(2))
    assert compiled_graphs() == 2
    undo()
    DEFAULT.release(torch)  # type: ignore[misc]
    assert compiled_graphs() == 1
    assert CompiledCheck().compiled([])
    torch._dynamo.utils.counters.clear()
    again = switched_on(loop)
    loop.train(ENOUGH + 1)
    assert (again.trouble(), compiled_graphs()) == (None, 1)
    again()
    DEFAULT.release(torch)  # type: ignore[misc]
    assert not CompiledCheck().compiled([])


class Recurrent(nn.Module):
    """Is traced, and left alone for its LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[0]


def test_a_model_that_dynamo_leaves_alone_does_not_make_the_job_a_compiled_one_for_good() -> None:
    loop = loop_of(Recurrent)
    undo = switched_on(loop)
    loop.train(ENOUGH + 2)
    assert (compiled_graphs(), frames_begun() > 0) == (0, True)
    undo()
    DEFAULT.release(torch)  # type: ignore[misc]
    assert not CompiledCheck().compiled([])


def test_what_the_job_sets_while_its_model_is_compiled_stays_after_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    for name in WRAPPED:
        monkeypatch.setattr(nn.Module, name, vars(nn.Module)[name])  # put back at the end
    monkeypatch.setattr(nn.Module, IS_TO_WRAP, True, raising=False)
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")
    monkeypatch.delenv("TORCHINDUCTOR_FREEZING")
    loop = training()
    undo = switched_on(loop)
    loop.train(ENOUGH + 1)
    below = nn.Module.__init__

    @functools.wraps(below)
    def seen(module: nn.Module, *args: object, **kwargs: object) -> None:
        made.append(type(module).__name__)
        below(module, *args, **kwargs)

    nn.Module.__init__ = seen  # type: ignore[method-assign]
    os.environ["TORCHINDUCTOR_FREEZING"] = "1"
    undo()
    DEFAULT.release(torch)  # type: ignore[misc]
    assert nn.Module.__init__ is seen
    assert os.environ["TORCHINDUCTOR_FREEZING"] == "1"
    nn.Linear(2, 2)
    assert made == ["Linear"]


def test_what_the_job_has_wrapped_before_anything_is_compiled_stays_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    below = nn.Module.__init__

    def theirs(module: nn.Module) -> None:
        below(module)

    loop = training()
    undo = switched_on(loop)
    monkeypatch.setattr(nn.Module, "__init__", theirs)
    loop.train(ENOUGH + 1)
    assert (nn.Module.__init__ is not theirs) == (compiled_graphs() > 0), undo.trouble()
    undo()
    DEFAULT.release(torch)  # type: ignore[misc]
    assert nn.Module.__init__ is theirs


def test_numpy_draws_its_own_numbers_in_a_branch_that_was_not_rehearsed() -> None:
    plain, cured = loop_of(Branching), loop_of(Branching)
    undo = switched_on(cured)
    found = []
    for loop in (plain, cured):
        trained(loop, ENOUGH + 1)
        np.random.seed(3)
        found.append((loop.model(torch.zeros(8, 16)), np.random.uniform(), torch.rand(1)))
    assert compiled_graphs() > 0
    assert undo.trouble() is None
    torch.testing.assert_close(*(result for result, _, _ in found))
    assert found[0][1:] == found[1][1:]
    undo()


def test_an_error_that_the_job_catches_comes_as_it_would_without_compiled_code() -> None:
    loop = loop_of(Branching)
    undo = switched_on(loop)
    loop.train(ENOUGH + 1)
    assert compiled_graphs() > 0
    with pytest.raises(AssertionError, match="a large row"):
        loop.model(torch.full((8, 16), 1e4))
    assert undo.trouble() is None
    undo()


LOOKS_UP = """
import torch
from torch import nn
from autobrrr.injected.live_torch.compiled_code import compiled_graphs
from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.model_calls.rehearsal import Rehearsal

Rehearsal.times = lambda *args: None
torch.set_num_threads(2)

class Looks(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(64, 64), nn.Linear(64, 8)

    def forward(self, x):
        found = torch.relu(self.table(x).mean(1) + self.table.weight[x[:, 1]])
        return nn.functional.cross_entropy(self.last(found), x[:, 2]) + found.gather(1, x).mean()

model, job = Looks(), Job(torch)
job.saw_root(model)
good = torch.randint(0, 8, (4096, 4))
remedy = REGISTRY["compile.default"]
undo = remedy.apply(job, remedy.option_values({}))
for _ in range(5):
    model(good).backward()
assert undo.trouble() is None and compiled_graphs() == 1
for column in range(3):
    bad = good.clone()
    bad[:, column] = (99, 99, 8)[column]
    try:
        model(bad)
    except IndexError:
        print("caught", flush=True)
undo()
remedy.release(torch)
"""


def test_an_index_out_of_range_is_an_error_that_the_job_may_catch_on_many_threads_too() -> None:
    done = subprocess.run([sys.executable, "-c", LOOKS_UP], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "caught\n" * 3), done.stderr


def test_another_number_of_threads_is_rehearsed_again_and_leaves_no_trace() -> None:
    loop = loop_of(lambda: nn.Sequential(nn.Linear(16, 4), nn.Tanh()))
    variables, threads = set(os.environ), {thread.name for thread in threading.enumerate()}
    undo = switched_on(loop)
    loop.train(ENOUGH + 1)
    torch.set_num_threads(2)
    loop.train(FEWEST_CALLS - 1)
    assert compiled_graphs() == 1  # eager until it stays so
    loop.train(1)
    assert (undo.trouble(), compiled_graphs()) == (None, 2)
    assert set(os.environ) == variables
    loop.model[1].register_buffer("more", torch.ones(1))  # compiled anew in training
    loop.train(1)
    undo()
    DEFAULT.release(torch)  # type: ignore[misc]
    assert set(os.environ) == variables
    assert {thread.name for thread in threading.enumerate()} <= threads


def test_a_copy_or_a_pickle_of_a_compiled_model_is_a_plain_one_of_its_own() -> None:
    loop = training()
    undo = switched_on(loop)
    loop.train(ENOUGH + 1)
    assert undo.trouble() is None
    twin, thawed = copy.deepcopy(loop.model), pickle.loads(pickle.dumps(loop.model))
    x = torch.randn(4, 16)
    for each in (twin, thawed):
        assert [list(vars(part)) for part in each.modules()] == [
            list(vars(part)) for part in training().model.modules()
        ]
        with torch.no_grad():
            for parameter in each.parameters():
                parameter.zero_()
        assert not each(x).any()
    assert loop.model(x).any()
    undo()


def test_what_can_not_be_compiled_trains_on_as_if_nothing_had_been() -> None:
    import torch._inductor.config as inductor

    plain, cured = training("SGD"), training("SGD")
    with inductor.patch({"cpp.cxx": ("false",), "force_disable_caches": True}):
        undo = switched_on(cured)
        assert all(map(torch.equal, trained(cured, 4), trained(plain, 4)))
    assert "can't be compiled: InductorError" in str(undo.trouble())
    undo()
    found, expected = picture(cured), picture(plain)
    alike = ("weights", "state", "random", "modules", "marks", "environment", "children", "modes")
    assert {name: found[name] for name in alike} == {name: expected[name] for name in alike}
    with pytest.raises(Refused, match="can't be compiled"):
        switched_on(cured)


def test_code_that_never_stays_the_same_is_a_storm() -> None:
    loop = loop_of(Scaled)
    undo = switched_on(loop)
    loop.train(ENOUGH + 1)
    assert undo.trouble() is None
    for scale in range(STORM + 3):
        loop.model.scale = 2.5 + scale
        loop.train(1)
    assert "times more" in str(undo.trouble())
    undo()


def test_a_forward_that_changes_the_model_is_told_apart_and_left_alone() -> None:
    plain, cured = loop_of(Counting, "SGD"), loop_of(Counting, "SGD")
    undo = switched_on(cured)
    assert all(map(torch.equal, trained(cured, 3), trained(plain, 3)))
    assert "own state (Counting.scale)" in str(undo.trouble())
    assert cured.model.scale == plain.model.scale
    undo()


def penalty(model: nn.Module) -> None:
    x = torch.randn(8, 16, requires_grad=True)
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    slope.square().mean().backward()


def retained(model: nn.Module) -> None:
    out = model(torch.randn(8, 16))
    out[:, 0].sum().backward(retain_graph=True)
    out[:, 1].sum().backward()


@pytest.mark.parametrize(("step", "why"), [(penalty, "create_graph"), (retained, "more than one backward")])
def test_a_backward_that_compiled_code_has_not_is_seen_before_anything_is_compiled(
    step: Callable[[nn.Module], None], why: str
) -> None:
    loop = loop_of(lambda: nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4)))
    undo = switched_on(loop)
    for _ in range(ENOUGH + 2):
        step(loop.model)
    assert why in str(undo.trouble())
    assert compiled_graphs() == 0
    undo()
    with pytest.raises(Refused, match=why):
        switched_on(loop)


class Heads(nn.Module):
    """Two heads, each with weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.one(x).tanh(), self.two(x).tanh()


def heads() -> tuple[Heads, Job]:
    model, job = Heads(), Job(torch)
    job.saw_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    job.saw_root(model)
    return model, job


def test_a_head_that_the_loss_does_not_use_gets_no_gradient_of_zeros() -> None:
    model, job = heads()
    undo = DEFAULT.apply(job, {})
    assert isinstance(undo, WatchedUndo)
    for _ in range(ENOUGH + 2):
        model(torch.randn(8, 16))[0].sum().backward()
    assert model.two.weight.grad is None
    assert "other gradients come out" in str(undo.trouble())
    undo()


def test_heads_are_compiled_where_one_backward_uses_both_and_no_longer_when_it_does_not() -> None:
    model, job = heads()
    undo = DEFAULT.apply(job, {})
    assert isinstance(undo, WatchedUndo)
    for _ in range(ENOUGH + 2):
        sum(model(torch.randn(8, 16))).sum().backward()
    assert (undo.trouble(), compiled_graphs()) == (None, 1)
    model(torch.randn(8, 16))[0].sum().backward()
    model.zero_grad()
    for _ in range(2):
        model(torch.randn(8, 16))[0].sum().backward()
    assert "not always use the same" in str(undo.trouble())
    undo()


def test_gradients_differentiated_again_later_end_the_compiled_code_before_the_next_forward() -> None:
    loop = training()
    undo = switched_on(loop)
    loop.train(ENOUGH + 1)
    assert (undo.trouble(), compiled_graphs()) == (None, 1)
    torch.autograd.grad(
        loop.model(torch.randn(8, 16)).sum(), list(loop.model.parameters()), create_graph=True
    )
    assert "create_graph" in str(undo.trouble())
    penalty(loop.model)  # eager again
    undo()


@pytest.mark.parametrize("where", ["within", "on the model", "on all modules"])
def test_hooks_that_the_job_sets_meanwhile_are_called_and_what_they_change_counts(where: str) -> None:
    plain, cured = training(), training()
    undo = switched_on(cured)
    for loop in (plain, cured):
        trained(loop, 6)
    assert compiled_graphs() == 1
    calls = {id(loop.model): 0 for loop in (plain, cured)}
    for loop in (plain, cured):

        def double(module: nn.Module, _: object, out: torch.Tensor, loop: Training = loop) -> torch.Tensor:
            calls[id(loop.model)] += 1
            return out * 2

        if where == "on all modules":
            handle = nn.modules.module.register_module_forward_hook(double)
        else:
            handle = (loop.model if where == "on the model" else loop.model[0]).register_forward_hook(double)  # type: ignore[index]
        trained(loop, 3)
        handle.remove()
        trained(loop, 2)
    assert calls[id(cured.model)] == calls[id(plain.model)] > 0
    for mine, theirs in zip(cured.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
    undo()


def test_a_model_that_the_job_gives_up_goes_while_its_compiled_code_is_kept() -> None:
    loop = training()
    undo = switched_on(loop)
    loop.train(4)
    assert compiled_graphs() == 1
    gone = weakref.ref(loop.model)
    del loop
    gc.collect()
    assert gone() is None
    undo()


@pytest.mark.parametrize("warm_up", [0, 4])
@pytest.mark.parametrize("name", ["compile.default", "precision.autocast_bf16"])
def test_weights_that_the_job_lends_a_module_keep_their_graph(name: str, warm_up: int) -> None:
    loop = loop_of(Scaled, "SGD")
    undo = REGISTRY[name].apply(loop.job, {})
    loop.train(warm_up)
    x = torch.randn(8, 16)
    for _ in range(4):
        fast = {each: 1.5 * weight for each, weight in loop.model.named_parameters()}
        inner = loop.model.inner
        expected = torch.tanh(x @ (1.5 * inner.weight).T + 1.5 * inner.bias) * 1.5
        loop.model.zero_grad()
        found = torch.func.functional_call(loop.model, fast, (x,))
        found.sum().backward()
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
        ours = [each.grad.clone() for each in loop.model.parameters()]
        loop.model.zero_grad()
        expected.sum().backward()
        for mine, weight in zip(ours, loop.model.parameters(), strict=True):
            torch.testing.assert_close(mine, weight.grad, rtol=0.05, atol=0.2)
    assert undo.trouble() is None  # type: ignore[attr-defined]
    undo()


def test_wrong_numbers_are_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(*_: object, **__: object) -> object:
        return lambda module, x: module._call_impl(x) * 1.01

    monkeypatch.setattr(torch, "compile", off)
    plain, cured = training("SGD"), training("SGD")
    undo = switched_on(cured)
    assert all(map(torch.equal, trained(cured, 3), trained(plain, 3)))
    assert "are off by 1.0e-02" in str(undo.trouble())
    undo()


def test_jobs_that_it_does_not_fit_are_refused_with_their_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    printing = loop_of(Printing)
    with pytest.raises(Refused, match="calls print"):
        switched_on(printing)
    plain = training()
    with pytest.raises(Refused, match="no block of the model is repeated"):
        REGIONAL.apply(plain.job, {})
    mostly_head = loop_of(
        lambda: nn.Sequential(*(nn.Sequential(nn.Linear(16, 16)) for _ in range(2)), nn.Linear(16, 2000))
    )
    with pytest.raises(Refused, match="only 2 % of the parameters"):
        REGIONAL.apply(mostly_head.job, {})
    hooked = training()
    hooked.model[0].register_forward_hook(lambda *_: None)
    with pytest.raises(Refused, match="forward hook"):
        switched_on(hooked)
    compiled = training()
    compiled.model.compile()
    with pytest.raises(Refused, match="compiled already"):
        switched_on(compiled)
    job = Job(torch)
    job.saw_root(nn.CrossEntropyLoss())
    with pytest.raises(Refused, match="no module that is trained"):
        DEFAULT.apply(job, {})
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(Refused, match="no C\\+\\+ compiler \\(no-such-compiler\\)"):
        switched_on(plain)


def test_few_processes_compile_at_a_time_however_many_cores_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch._inductor.config as inductor_config

    seen: list[int] = []

    def uncompiled(
        _torch: object, module: nn.Module, *_mode: object, **_how: object
    ) -> Callable[..., object]:
        def call(*args: object) -> object:
            seen.append(inductor_config.compile_threads)
            return module._call_impl(*args)

        return call

    monkeypatch.setattr(compile_module, "_compiled", uncompiled)
    loop = training(model="attention")
    with inductor_config.patch(compile_threads=32):
        undo = REGISTRY["compile.default"].apply(loop.job, {"dynamic": False, "random": "same"})
        loop.train(ENOUGH + 2)
        assert set(seen) == {compile_module.MOST_WORKERS}
        undo()
        assert inductor_config.compile_threads == 32
