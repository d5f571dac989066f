"""Compiling live modules as their owner would: the same training, eager where torch can't, nothing left."""

import copy
import gc
import logging
import os
import pickle
import weakref

import pytest
import torch
from torch import nn

from autobrrr.agent.live_torch.compiled_code import compiled_graphs
from autobrrr.agent.remedies.compile.compile_models import RARE, STORM, WARM_UP_STEPS, usual_cache
from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import Refused, WatchedUndo
from support.agent.remedies import Training, loop_of, picture, training

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("first_order", "one_thread"),
]

DEFAULT, REGIONAL = REGISTRY["compile.default"], REGISTRY["compile.regional"]


def switched_on(loop: Training, **options: object) -> WatchedUndo:
    undo = DEFAULT.apply(loop.job, DEFAULT.option_values(options))
    assert isinstance(undo, WatchedUndo)
    return undo


def trained(loop: Training, steps: int, *, seed: int = 5) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    loop.train(steps)
    return [each.detach().clone() for each in loop.model.parameters()]


class Counting(nn.Module):
    """Remembers how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 4)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count()
        return torch.tanh(self.inner(x))

    @torch._dynamo.disable
    def count(self) -> None:
        self.calls += 1


class Growing(nn.Module):
    """Has another number to multiply with in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 4)
        self.turn = "a"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.inner(x)) * len(self.turn)


def test_dropout_draws_the_same_numbers_and_the_end_of_a_session_leaves_no_trace() -> None:
    plain, cured = training(), training()
    before = picture(cured)
    init, validate = nn.Module.__init__, torch.distributions.Distribution._validate_args
    undo = switched_on(cured)
    weights = list(zip(trained(cured, 6), trained(plain, 6), strict=True))
    assert undo.trouble() is None
    assert compiled_graphs() == 1
    assert picture(cured)["random"] == picture(plain)["random"]
    for mine, theirs in weights:
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    undo()
    assert DEFAULT.release is not None
    DEFAULT.release(torch)
    assert compiled_graphs() == 0
    after = picture(cured)
    for name in ("modules", "marks", "children", "class"):
        assert after[name] == before[name]
    assert nn.Module.__init__ is init
    assert torch.distributions.Distribution._validate_args is validate


@pytest.mark.usefixtures("no_kernels")
def test_the_users_code_runs_once_a_step() -> None:
    loop = loop_of(Counting)
    before = loop.model.calls
    undo = switched_on(loop)
    loop.train(5)
    undo()
    loop.train(1)
    assert loop.model.calls == before + 6


@pytest.mark.usefixtures("no_kernels")
def test_evaluation_and_rare_shapes_stay_eager_and_switching_again_compiles_nothing() -> None:
    loop = training()
    undo = switched_on(loop)
    loop.train(2)
    assert compiled_graphs() == 1
    with torch.no_grad():
        loop.model(torch.randn(5, 16))
    loop.model(torch.randn(3, 16)).sum().backward()  # the last batch of an epoch
    assert compiled_graphs() == 1
    undo()
    again = switched_on(loop)
    loop.train(2)
    assert compiled_graphs() == 1
    for _ in range(RARE + 1):
        loop.model(torch.randn(3, 16)).sum().backward()
    assert compiled_graphs() == 2
    again()


def test_what_is_only_shown_leaves_nothing_compiled_and_no_graphs_in_the_job() -> None:
    plain, shown = training(), training()
    told: list[dict[str, object]] = []
    shown.job.prepares, shown.job.emit = True, told.append
    undo = switched_on(shown)
    weights = list(zip(trained(shown, 3), trained(plain, 3), strict=True))
    assert all(torch.equal(mine, theirs) for mine, theirs in weights)
    undo()
    assert compiled_graphs() == 0
    finish = told[0]["finish"]
    assert callable(finish)
    event, fd = finish()
    assert event == {"event": "graphs", "fd": True}
    assert os.fstat(fd).st_size > 1000
    os.close(fd)
    assert finish()[1] is None
    assert DEFAULT.release is not None
    DEFAULT.release(torch)


def test_code_that_torch_can_not_compile_goes_on_eagerly_with_torchs_reason(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> object:
        raise RuntimeError("no such kernel")

    plain, cured = training(), training()
    undo = switched_on(cured)
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", fails)
    assert all(map(torch.equal, trained(cured, 4), trained(plain, 4)))
    troubles = [undo.trouble() for _ in range(WARM_UP_STEPS)]
    assert "no such kernel" in str(troubles[-1])
    undo()
    assert "convert_frame" not in capfd.readouterr().err
    assert not any(
        type(each).__name__ == "SaidByCompiler" for each in logging.getLogger("torch._dynamo").filters
    )


@pytest.mark.usefixtures("no_kernels")
def test_inputs_that_keep_changing_are_a_storm() -> None:
    loop = loop_of(Growing)
    undo = switched_on(loop)
    whys = []
    for turn in range(WARM_UP_STEPS + STORM + 2):
        loop.model.turn = "a" * (turn + 1)
        loop.train(1)
        whys.append(undo.trouble())
    assert any("compiled it again" in str(why) for why in whys)
    undo()


@pytest.mark.usefixtures("no_kernels")
def test_hooks_that_come_later_are_called() -> None:
    loop = training()
    undo = switched_on(loop)
    loop.train(2)
    seen: list[object] = []
    handle = next(iter(loop.model.modules())).register_forward_hook(lambda *_: seen.append(1))
    loop.train(2)
    assert len(seen) == 2
    handle.remove()
    undo()


@pytest.mark.usefixtures("no_kernels")
def test_a_retained_graph_and_accumulated_gradients_are_what_they_were() -> None:
    plain, cured = training(), training()
    undo = switched_on(cured)
    trained(cured, 2)
    trained(plain, 2)
    found = []
    for loop in (cured, plain):
        torch.manual_seed(9)
        loss = loop.model(torch.randn(8, 16)).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
        found.append([each.grad.clone() for each in loop.model.parameters() if each.grad is not None])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
    undo()


@pytest.mark.usefixtures("no_kernels")
def test_a_copy_or_a_pickle_of_a_compiled_model_is_a_plain_one() -> None:
    loop = training()
    undo = switched_on(loop)
    loop.train(2)
    for made in (copy.deepcopy(loop.model), pickle.loads(pickle.dumps(loop.model))):
        assert not any(vars(part).get("_compiled_call_impl") for part in made.modules())
    undo()


@pytest.mark.usefixtures("no_kernels")
def test_a_model_that_the_job_gives_up_is_freed_while_the_remedy_is_on() -> None:
    loop = training()
    undo = switched_on(loop)
    loop.train(2)
    gone = weakref.ref(loop.model)
    loop.model, loop.optimizer = nn.Identity(), None  # type: ignore[assignment]
    loop.job.roots.clear() if hasattr(loop.job.roots, "clear") else None
    gc.collect()
    undo()
    gc.collect()
    assert gone() is None


@pytest.mark.usefixtures("no_kernels")
def test_a_jobs_own_compiled_function_is_no_reason_to_refuse_and_stays_compiled() -> None:
    loop = training()
    theirs = torch.compile(lambda x: x.sin() + 1, backend="eager")
    theirs(torch.ones(2))
    undo = switched_on(loop)
    loop.train(2)
    undo()
    assert DEFAULT.release is not None
    DEFAULT.release(torch)
    before = compiled_graphs()
    theirs(torch.ones(2))
    assert compiled_graphs() == before


@pytest.mark.usefixtures("no_kernels")
def test_repeated_blocks_share_one_graph() -> None:
    loop = training(model="blocks")
    undo = REGIONAL.apply(loop.job, REGIONAL.option_values({}))
    loop.train(2)
    assert compiled_graphs() == 2  # the first block's input needs no gradient
    undo()


def test_torchs_usual_cache_is_known_without_importing_it() -> None:
    assert usual_cache() == pytest.importorskip("torch._inductor.runtime.cache_dir_utils").default_cache_dir()


def test_what_can_not_work_is_refused_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = training()
    monkeypatch.setattr(os, "lstat", lambda path: os.stat_result((0o40777, 1, 1, 2, 4711, *[0] * 5)))
    with pytest.raises(Refused, match="belongs to uid 4711"):
        switched_on(loop)
    monkeypatch.setenv("CXX", "/nonexistent/g++")
    with pytest.raises(Refused, match=r"no C\+\+ compiler"):
        switched_on(loop)
