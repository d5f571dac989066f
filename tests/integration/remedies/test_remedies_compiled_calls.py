"""Compiled calls beside plain ones: timed both ways, and plain within modes and with lent weights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from autobrrr.injected.live_torch.compiled_code import compiled_graphs
from autobrrr.injected.remedies.compile import compile_models as compile_module
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.model_calls.backward_watch import ENOUGH
from autobrrr.injected.remedies.model_calls.rehearsal import Rehearsal
from autobrrr.injected.remedies.model_calls.timed_calls import CallTimes
from autobrrr.injected.remedies.registry import Refused, WatchedUndo
from support.injected.remedies import Training, loop_of, training

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


@pytest.mark.parametrize(("other_ms", "stays"), [(3.0, False), (1.0, True)])
def test_what_is_slower_on_copies_never_meets_training(
    other_ms: float, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = CallTimes(2e6, other_ms * 1e6, 0.9 * other_ms * 1e6, 1.1 * other_ms * 1e6, 8)
    monkeypatch.setattr(Rehearsal, "times", lambda *args: timed)
    plain, cured = training(), training()
    undo = switched_on(cured)
    for steps in (ENOUGH + 2, 1, 1):
        trained(cured, steps)
        trained(plain, steps)
        why = undo.trouble()
        assert (why is None) == stays
    assert why is None or why.startswith("slower: ")
    told = undo.times(0)
    assert told is not None
    assert undo.times(1) is None
    assert (told["graphs"], told["kinds"]) == (1, 1)
    assert told["other_ns"] / told["plain_ns"] == pytest.approx(other_ms / 2)
    same = all(map(torch.equal, cured.model.parameters(), plain.model.parameters()))
    assert same or stays
    undo()
    if not stays:
        with pytest.raises(Refused, match="slower"):
            switched_on(cured)


def test_a_rehearsal_times_real_calls_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(compile_module, "says", lambda pattern: None)
    cured = training()
    undo = switched_on(cured)
    trained(cured, ENOUGH + 2)
    undo.trouble()
    told = undo.times(0)
    assert told is not None
    assert told["graphs"] >= 1
    assert 0 < told["least_ns"] < told["other_ns"] < told["most_ns"]
    assert told["plain_ns"] > 0
    undo()


class Rough(TorchFunctionMode):
    """A mode of the job's own that rounds what linear layers give, as fake quantization does."""

    def __torch_function__(
        self, function: object, types: object, args: tuple[object, ...] = (), kwargs: object = None
    ) -> object:
        result = function(*args, **(kwargs or {}))  # type: ignore[operator]
        return result.bfloat16().float() if function is nn.functional.linear else result


class Counted(TorchDispatchMode):
    """A mode of the job's own that counts operators."""

    seen = 0

    def __torch_dispatch__(
        self, function: object, types: object, args: tuple[object, ...] = (), kwargs: object = None
    ) -> object:
        self.seen += 1
        return function(*args, **(kwargs or {}))  # type: ignore[operator]


def test_calls_within_a_mode_of_the_job_s_own_stay_eager() -> None:
    loop, x = loop_of(lambda: nn.Sequential(nn.Linear(16, 4), nn.Tanh())), torch.randn(8, 16)
    with Counted() as plain:
        loop.model(x)
    undo = switched_on(loop)
    loop.train(ENOUGH + 1)
    assert compiled_graphs() == 1
    with Rough():
        found = loop.model(x)
        eager = loop.model._call_impl(x)
    assert torch.equal(found, eager)
    assert not torch.equal(found, loop.model._call_impl(x))
    with Counted() as counted:
        loop.model(x)
    assert counted.seen == plain.seen
    assert compiled_graphs() == 1
    assert undo.trouble() is None
    undo()


def test_the_job_may_swap_weights_for_others_while_its_calls_are_compiled() -> None:
    loop = loop_of(lambda: nn.Sequential(nn.Linear(16, 4), nn.Tanh()))
    undo = switched_on(loop)
    loop.train(ENOUGH + 1)
    weight = loop.model[0].weight  # type: ignore[index]
    torch.utils.swap_tensors(weight, nn.Parameter(torch.zeros_like(weight)))
    loop.train(1)
    undo()
    assert not vars(weight)


def test_calls_that_are_differentiated_forwards_stay_eager() -> None:
    loop, x = loop_of(lambda: nn.Sequential(nn.Linear(16, 4), nn.Tanh())), torch.randn(8, 16)
    undo = switched_on(loop)
    loop.train(ENOUGH + 1)
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(loop.model(forward_ad.make_dual(x, x))).tangent
        found.square().mean().backward()
        eager = forward_ad.unpack_dual(loop.model._call_impl(forward_ad.make_dual(x, x))).tangent
    assert torch.equal(found, eager)
    assert compiled_graphs() == 1
    assert undo.trouble() is None
    undo()


class Twice(nn.Module):
    """Called with two tensors, which may be one."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
        return self.inner(x).tanh() + (0.0 if other is None else other.mean())


def test_a_tensor_that_is_given_twice_is_compiled_for_in_the_rehearsal() -> None:
    loop, x = loop_of(Twice), torch.randn(8, 16)
    undo = switched_on(loop)
    for _ in range(ENOUGH + 3):
        loop.model(x, x).square().mean().backward()
    assert compiled_graphs() == 1
    assert undo.trouble() is None
    undo()
