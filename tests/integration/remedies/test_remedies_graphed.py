"""Replayed calls on a stand-in for CUDA graphs: one that, like them, writes to the same memory each time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.compile.graphed_calls import beside_threads, graph_calls, graphed
from autobrrr.injected.remedies.registry import Refused, WatchedUndo
from support.injected.remedies import Training, loop_of, picture, training

pytestmark = pytest.mark.integration


class Recorder:
    """Stands in for `torch.cuda.make_graphed_callables`: static inputs, results and gradients."""

    def __init__(self) -> None:
        self.captures = 0
        self.replays = 0

    def __call__(
        self, module: nn.Module, sample: tuple[torch.Tensor, ...], allow_unused_input: bool = False
    ) -> Callable[..., torch.Tensor]:
        assert allow_unused_input
        self.captures += 1
        for _ in range(3):  # warm-up: draws numbers, moves running means
            module(*sample).sum()
        parameters = tuple(module.parameters())
        surface = [each.detach().clone().requires_grad_(each.requires_grad) for each in sample]
        state: dict[str, torch.Tensor] = {}
        results = module(*surface).detach().clone()
        gradients = [torch.zeros_like(each) for each in (*surface, *parameters)]
        recorder = self

        class Replay(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *inputs):  # type: ignore[no-untyped-def]
                recorder.replays += 1
                with torch.no_grad():
                    for mine, theirs in zip(surface, inputs, strict=False):
                        mine.copy_(theirs)
                with torch.enable_grad():
                    state["out"] = module(*surface)
                with torch.no_grad():
                    results.copy_(state["out"])
                return results.detach()

            @staticmethod
            def backward(ctx, gradient):  # type: ignore[no-untyped-def]
                wanted = [each for each in (*surface, *parameters) if each.requires_grad]
                found = iter(torch.autograd.grad(state["out"], wanted, gradient, retain_graph=True))
                for static, each in zip(gradients, (*surface, *parameters), strict=True):
                    if each.requires_grad:
                        static.copy_(next(found))
                return tuple(
                    static.detach() if each.requires_grad else None
                    for static, each in zip(gradients, (*surface, *parameters), strict=True)
                )

        return lambda *args: Replay.apply(*args, *parameters)


@pytest.fixture
def pair() -> Iterator[tuple[Training, Training, Recorder, WatchedUndo]]:
    plain, cured, recorder = training(model="images"), training(model="images"), Recorder()
    undo = graph_calls(cured.job, recorder)
    assert isinstance(undo, WatchedUndo)
    yield plain, cured, recorder, undo
    undo()


Pair = tuple[Training, Training, Recorder, WatchedUndo]


def same(plain: Training, cured: Training) -> None:
    for mine, theirs in zip(
        cured.model.state_dict().values(), plain.model.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


def both(pair: Pair, train: Callable[[Training], list[torch.Tensor]]) -> None:
    """Train both the same way: results that are held on to, weights and running means agree."""
    found = []
    for loop in pair[:2]:
        torch.manual_seed(5)
        found.append(train(loop))
    for theirs, mine in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)
    same(*pair[:2])
    assert pair[3].trouble() is None
    assert pair[2].replays > 2


def test_replays_train_as_eager_calls_do_and_warming_up_moves_no_running_mean(pair: Pair) -> None:
    both(pair, lambda loop: [loop.train(6)][1:])  # type: ignore[func-returns-value]
    assert pair[2].captures == 1


def test_gradients_accumulate_and_results_outlive_the_next_replay(pair: Pair) -> None:
    def train(loop: Training) -> list[torch.Tensor]:
        results = []
        for _ in range(4):
            loop.optimizer.zero_grad()
            for _ in range(2):
                out = loop.model(torch.randn(8, 16))
                out.square().mean().backward()
                results.append(out.detach())
            loop.optimizer.step()
        return results

    both(pair, train)


def test_a_second_forward_before_the_backward_runs_eagerly(pair: Pair) -> None:
    def train(loop: Training) -> list[torch.Tensor]:
        results = []
        for _ in range(4):
            loop.optimizer.zero_grad()
            first, second = (loop.model(torch.randn(8, 16)) for _ in range(2))
            (first.square().mean() + 2 * second.square().mean()).backward()
            loop.optimizer.step()
            results += [first.detach(), second.detach()]
        return results

    both(pair, train)


def test_a_graph_that_is_kept_is_not_overwritten(pair: Pair) -> None:
    def train(loop: Training) -> list[torch.Tensor]:
        results = []
        for _ in range(4):
            loop.optimizer.zero_grad()
            kept = loop.model(torch.randn(8, 16)).square().mean()
            kept.backward(retain_graph=True)
            loop.model(torch.randn(8, 16)).square().mean().backward()
            kept.backward()
            results.append(kept.detach())
            loop.optimizer.step()
            del kept
        return results

    both(pair, train)


def test_a_forward_that_is_thrown_away_does_not_stop_replays(pair: Pair) -> None:
    def train(loop: Training) -> list[torch.Tensor]:
        for _ in range(4):
            loop.model(torch.randn(8, 16))
            loop.train(1)
        return []

    both(pair, train)
    assert pair[2].replays >= 8


def test_parameters_that_move_are_read_where_they_are(pair: Pair) -> None:
    def train(loop: Training) -> list[torch.Tensor]:
        loop.train(3)
        for parameter in loop.model.parameters():
            parameter.data = parameter.data * 0.5
        loop.train(3)
        return []

    both(pair, train)


def test_other_shapes_run_eagerly_and_evaluation_too(pair: Pair) -> None:
    def train(loop: Training) -> list[torch.Tensor]:
        loop.train(3)
        short = loop.model(torch.randn(3, 16))
        short.square().mean().backward()
        loop.optimizer.step()
        loop.model.eval()
        with torch.no_grad():
            evaluated = loop.model(torch.randn(8, 16))
        loop.model.train()
        return [short.detach(), evaluated]

    both(pair, train)


def test_an_undo_leaves_no_trace() -> None:
    loop, recorder = training(model="images"), Recorder()
    before = picture(loop)["modules"]
    undo = graph_calls(loop.job, recorder)
    loop.train(3)
    undo()
    assert picture(loop)["modules"] == before
    assert all(each._backward_hooks is None for each in loop.model.parameters())
    replays = recorder.replays
    loop.train(2)
    assert recorder.replays == replays


def test_what_can_not_be_recorded_runs_eagerly_with_torchs_reason() -> None:
    def fails(*_: object, **__: object) -> Callable[..., object]:
        raise RuntimeError("operation not permitted when stream is capturing")

    plain, cured = training(model="images"), training(model="images")
    undo = graph_calls(cured.job, fails)
    assert isinstance(undo, WatchedUndo)
    for loop in (plain, cured):
        torch.manual_seed(5)
        loop.train(5)
    same(plain, cured)
    assert "not permitted" in str(undo.trouble())
    undo()


def test_the_calls_that_warm_up_draw_no_numbers_of_the_jobs() -> None:
    plain, cured, recorder = training(), training(), Recorder()
    undo = graph_calls(cured.job, recorder)
    assert isinstance(undo, WatchedUndo)
    for loop in (plain, cured):
        torch.manual_seed(5)
        loop.train(6)
    same(plain, cured)
    assert undo.trouble() is None
    assert (recorder.captures, recorder.replays > 2) == (1, True)
    undo()


def test_calls_under_autocast_are_recorded_apart_and_without_its_cache_of_weights() -> None:
    class Watching(Recorder):
        cached: list[bool] = []

        def __call__(self, *args: object, **kwargs: object) -> Callable[..., torch.Tensor]:
            self.cached.append(torch.is_autocast_cache_enabled())
            return super().__call__(*args, **kwargs)  # type: ignore[arg-type]

    loop, recorder = training(model="images"), Watching()
    undo = graph_calls(loop.job, recorder)
    loop.train(4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loop.train(4)
        assert torch.is_autocast_cache_enabled()
    assert recorder.cached == [False, False]
    undo()


def test_other_threads_do_not_end_a_capture_that_watches_its_own() -> None:
    before = torch.cuda.graph
    seen: list[object] = []

    def capture(*args: object, **kwargs: object) -> Callable[..., object]:
        seen.append(torch.cuda.graph.keywords)
        raise ValueError

    with pytest.raises(ValueError):
        beside_threads(torch, capture)(None)
    assert seen == [{"capture_error_mode": "thread_local"}]
    assert torch.cuda.graph is before


def test_unsafe_cases_are_refused() -> None:
    hooked = training(model="images")
    next(hooked.model.parameters()).register_hook(lambda gradient: gradient)
    with pytest.raises(Refused, match="hooks"):
        graph_calls(hooked.job, Recorder())
    assert picture(hooked)["modules"] == picture(training(model="images"))["modules"]
    two = training()
    other = nn.Linear(2, 2)
    two.job.saw_root(other)
    with pytest.raises(Refused, match="one model"):
        graph_calls(two.job, Recorder())
    with pytest.raises(Refused):
        graph_calls(Job(torch), Recorder())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_refused() -> None:
    loop = training()
    with pytest.raises(Refused, match="CUDA"):
        graphed(loop.job, {})


class Frozen(Recorder):
    """A graph keeps what Python decided when it was recorded; tensors alone are read anew."""

    def __call__(self, module, sample, allow_unused_input=False):  # type: ignore[no-untyped-def]
        kept = {id(each): each for each in (*module.parameters(), *module.buffers())}
        return super().__call__(copy.deepcopy(module, kept), sample, allow_unused_input)


class Annealed(nn.Module):
    """Reads a number that the script sets."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.scale = nn.Linear(16, 8), nn.BatchNorm1d(8), 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.norm(self.one(x)) * self.scale)


@pytest.mark.parametrize("what", ["a number", "an evaluated part"])
def test_what_the_script_sets_on_its_model_later_counts(what: str) -> None:
    found = []
    for on in (False, True):
        loop = loop_of(Annealed)
        recorder = Frozen()
        undo = graph_calls(loop.job, recorder) if on else lambda: None
        torch.manual_seed(5)
        loop.train(4)
        assert (recorder.replays > 0) is on
        if what == "a number":
            loop.model.scale = 3.0  # type: ignore[assignment]
        else:
            loop.model.norm.eval()  # type: ignore[union-attr,operator]
        loop.train(4)
        undo()
        found.append([each.detach().clone() for each in loop.model.parameters()])
    for theirs, mine in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


class Held3(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.act = nn.Linear(16, 8), torch.tanh
        self.register_buffer("mask", torch.ones(8))
        self.gain = torch.ones(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.one(x)) * self.mask * self.gain  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "value"),
    [("mask", torch.tensor([1.0, 0.0] * 4)), ("gain", torch.full((8,), 3.0)), ("act", torch.sigmoid)],
)
def test_a_replay_goes_on_with_nothing_that_the_script_has_replaced(name: str, value: object) -> None:
    found = []
    for on in (False, True):
        loop, recorder = loop_of(Held3), Frozen()
        undo = graph_calls(loop.job, recorder) if on else lambda: None
        torch.manual_seed(5)
        loop.train(4)
        assert (recorder.replays > 0) is on
        setattr(loop.model, name, value)
        loop.train(4)
        undo()
        found.append([each.detach().clone() for each in loop.model.parameters()])
    for theirs, mine in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)
