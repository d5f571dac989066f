"""The small parts of the shadow probe: nests, views at another batch, code scan, module state, FLOPs."""

from __future__ import annotations

import functools
import itertools
import math
import random
import sys
import types
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from autobrrr.injected.batch_probe import resize_plan
from autobrrr.injected.batch_probe.step_recorder import Node
from autobrrr.injected.job_code import installed_code
from autobrrr.injected.job_code.replaced_functions import replaced_functions
from autobrrr.injected.job_state.module_state import ModuleState
from autobrrr.injected.job_state.state_guard import Guarded, StateGuard
from autobrrr.injected.live_torch import op_flops
from autobrrr.injected.live_torch.dispatch_modes import dispatch_mode
from autobrrr.injected.live_torch.pytrees import Ref, leaves, map_tree, refs
from autobrrr.injected.live_torch.torch_types import Abstain
from support.batch_probe.read_code import read, refusals

Pair = namedtuple("Pair", "left right")


@dataclass
class Record:
    one: object
    other: object


@pytest.mark.parametrize(
    "nest",
    [
        (1, [2, 3]),
        {"a": 1, "b": (2, 3)},
        Pair(1, [2, 3]),
        OrderedDict(a=1, b=[2, 3]),
        Record(1, [2, 3]),
        slice(1, 2, 3),
    ],
)
def test_a_nest_is_rebuilt_with_its_leaves_replaced_and_keeps_its_type(nest: object) -> None:
    assert leaves(nest) == [1, 2, 3]
    made = map_tree(nest, Ref)  # type: ignore[arg-type]
    assert type(made) is type(nest)
    assert refs(made) == [1, 2, 3]
    assert leaves(nest) == [1, 2, 3], "the nest itself is left alone"


def at_another_batch(
    function: Callable[..., object], *args: object, multiples: bool = False
) -> tuple[object, ...]:
    """Arguments of a call that was recorded at B = 8, with the tensor that came in at 2."""
    node = Node(
        kind="function", target=function, args=(Ref(0), *args[1:]), kwargs={}, grad=True, cast=(), outputs=[1]
    )
    guess = resize_plan.Guess(multiples=multiples)
    whole = resize_plan.ResizePlan(batch=8, order=[], feeds={}, guess=guess)
    return resize_plan.arguments(node, {0: args[0]}, whole, 2)[0][1:]  # type: ignore[dict-item]


def test_a_view_that_no_longer_fits_is_scaled() -> None:
    assert at_another_batch(torch.Tensor.view, torch.zeros(2, 6), 8, 2, 3) == (2, 2, 3)
    assert at_another_batch(torch.Tensor.view, torch.zeros(2, 5, 6), 40, 6) == (10, 6)
    assert at_another_batch(torch.Tensor.reshape, torch.zeros(2, 6), (8, 6)) == (2, 6)


def test_a_free_size_takes_up_the_batch_unless_b_stands_before_it() -> None:
    assert at_another_batch(torch.Tensor.view, torch.zeros(2, 5, 16), -1, 16) == (-1, 16)
    assert at_another_batch(torch.Tensor.view, torch.zeros(2, 5, 16), 8, -1) == (2, -1)
    assert at_another_batch(torch.Tensor.view, torch.zeros(2, 5, 8), -1, 8) == (-1, 8)


def test_a_view_that_fits_is_left_alone() -> None:
    assert at_another_batch(torch.Tensor.view, torch.zeros(2, 32), 8, 8) == (8, 8)


def test_slices_and_repeats_that_mean_the_batch_are_scaled() -> None:
    assert at_another_batch(torch.Tensor.__getitem__, torch.zeros(4, 3), slice(8, 16)) == (slice(2, 4),)
    assert at_another_batch(torch.Tensor.expand, torch.zeros(1, 3), 8, 3) == (2, 3)


class Quiet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.names = ["a"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x) * math.pi + functional.relu(x)
        return self.twice(x) if len(self.names) else x

    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([part * 2 for part in x])


class Opens(Quiet):
    def twice(self, x: torch.Tensor) -> torch.Tensor:
        def inner() -> object:
            return open("/dev/null")

        inner()
        return x


class Logs(Quiet):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        import logging

        logging.getLogger("x").info("y")
        return x


class Hooks(Quiet):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        y.register_hook(lambda grad: grad)
        return y


class Gathers(Quiet):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.distributed.all_reduce(x)
        return x


class Keeper:
    def __init__(self) -> None:
        self.seen = 0

    def note(self) -> None:
        print(self.seen)


class TellsItsKeeper(Quiet):
    def __init__(self) -> None:
        super().__init__()
        self.keeper = Keeper()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.keeper.note()
        return x


CALLS = 0


class Tally:
    calls = 0


class SetsAGlobal(Quiet):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global CALLS
        CALLS += 1
        return self.linear(x)


class SetsAClass(Quiet):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Tally.calls += 1
        return self.linear(x)


def tallied(x: torch.Tensor) -> torch.Tensor:
    tallied.calls = getattr(tallied, "calls", 0) + 1  # type: ignore[attr-defined]
    return x


class CallsATallied(Quiet):
    def forward(this, x: torch.Tensor) -> torch.Tensor:
        return tallied(this.linear(x))


class TakesTurns(Quiet):
    def __init__(self) -> None:
        super().__init__()
        self.turn = itertools.cycle((1.0, 2.0))

    def forward(this, x: torch.Tensor) -> torch.Tensor:
        return this.linear(x) * next(this.turn)


@functools.lru_cache
def noise(size: int) -> torch.Tensor:
    return torch.rand(size, 3)


class FillsACache(Quiet):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + noise(x.shape[0])


class EndsTheJob(Quiet):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 8:
            raise SystemExit("at most 8")
        return self.linear(x)


class SetsWhatItImports(Quiet):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        import autobrrr.injected.batch_probe.resize_plan as place

        place.mark = getattr(place, "mark", 0) + 1  # type: ignore[attr-defined]
        return self.linear(x)


class AsItsParentDoes(Opens):
    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return super().twice(x)


def announced(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(function)
    def around(*args: torch.Tensor) -> torch.Tensor:
        print("called")
        return function(*args)

    return around


class Decorated(Quiet):
    forward = announced(Quiet.forward)


class TellsWhenCalled(Quiet):
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        print("called")
        return super().__call__(x)


def counting() -> nn.Module:
    calls = 0

    class SetsWhatIsAround(Quiet):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            return self.linear(x)

    return SetsWhatIsAround()


@pytest.mark.parametrize(
    "put",
    [
        lambda relu: relu,
        functools.wraps(nn.functional.relu),
        lambda relu: types.MethodType(lambda _, x, inplace: relu(x), ""),
    ],
)
def test_what_the_job_put_in_the_place_of_a_function_of_torchs_is_read_too(
    put: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = nn.functional.relu

    def relu(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
        print("called")
        return original(x, inplace)

    monkeypatch.setattr(nn.functional, "relu", put(relu))
    assert any("calls print" in one for one in refusals(nn.ReLU()))


def test_what_the_job_only_added_to_torchs_own_is_no_part_of_a_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "describe", lambda self: print(self.shape), raising=False)
    assert not list(replaced_functions(torch))
    assert not refusals(nn.ReLU())
    monkeypatch.setattr(torch.Tensor, "add", lambda self, other: self, raising=False)
    assert [name for name, _ in replaced_functions(torch)] == ["Tensor.add"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Opens, "Opens.twice calls open"),
        (Logs, "Logs.forward uses logging"),
        (Hooks, "Hooks.forward calls register_hook"),
        (Gathers, "Gathers.forward uses torch.distributed"),
        (TellsItsKeeper, "Keeper.note calls print"),
        (SetsAGlobal, "SetsAGlobal.forward sets CALLS"),
        (SetsAClass, "SetsAClass.forward sets Tally.calls"),
        (CallsATallied, "tallied sets tallied.calls"),
        (TakesTurns, "TakesTurns.forward takes from self.turn, an iterator"),
        (FillsACache, "FillsACache.forward fills the cache of noise"),
        (EndsTheJob, "EndsTheJob.forward uses SystemExit, which could end the job"),
        (SetsWhatItImports, "SetsWhatItImports.forward sets autobrrr.injected.batch_probe.resize_plan.mark"),
        (AsItsParentDoes, "Opens.twice calls open"),
        (Decorated, "Quiet.forward calls print"),
        (TellsWhenCalled, "TellsWhenCalled.__call__ calls print"),
        (counting, "counting.<locals>.SetsWhatIsAround.forward sets calls"),
    ],
)
def test_forward_code_that_can_be_seen_from_outside_is_named(
    kind: Callable[[], nn.Module], reason: str
) -> None:
    assert reason in [refusal.what for refusal in read(kind()).findings.refusals]


@pytest.mark.parametrize(
    "module", [Quiet(), nn.TransformerEncoderLayer(8, 2), nn.LSTM(3, 3), nn.BatchNorm1d(3)]
)
def test_forward_code_of_torch_and_mathematics_is_quiet(module: nn.Module) -> None:
    assert read(module).findings.refusals == []


class Meter:
    count = 0

    def __init__(self) -> None:
        self.values = [1.0]


class Slotted:
    __slots__ = ("__hidden", "late", "seen")

    def __init__(self) -> None:
        self.seen = self.__hidden = 0

    def hide(self) -> None:
        self.__hidden += 1


class Parent(nn.Module):
    everywhere: ClassVar[list[int]] = []


class Changing(Parent):
    shared = 0
    common: ClassVar[dict[str, int]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.slots, self.array, self.single = Slotted(), np.zeros(3), np.zeros(())
        self.holder = SimpleNamespace(steps=0)
        self.list, self.dict, self.set, self.queue = [1], {"a": 1}, {1}, deque([1])
        self.raw, self.meter, self.plain = bytearray(b"a"), Meter(), 3
        self.register_buffer("running", torch.zeros(3))
        self.cache, self.noise, self.dice = torch.zeros(2), torch.Generator(), random.Random(1)

    def change(self, name: str) -> None:
        match name:
            case "list":
                self.list.append(2)
            case "dict":
                self.dict["b"] = 2
            case "set":
                self.set.add(2)
            case "queue":
                self.queue.append(2)
            case "raw":
                self.raw[0] = 0
            case "meter.values":
                self.meter.values.append(2.0)
            case "plain":
                self.plain = 4
            case "new":
                self.new = 1
            case "Changing.shared":
                type(self).shared = 1
            case "Changing.common":
                self.common["a"] = 1
            case "Parent.everywhere":
                self.everywhere.append(1)
            case "slots.seen":
                self.slots.seen += 1
            case "slots.late":
                self.slots.late = 1
            case "slots._Slotted__hidden":
                self.slots.hide()
            case "array":
                self.array[1] = 2.0
            case "single":
                self.single += 1
            case "holder.steps":
                self.holder.steps += 1


def told(module: Changing) -> dict[str, str]:
    """All of a module's Python state, as text."""
    slots = [getattr(module.slots, name, None) for name in ("seen", "late", "_Slotted__hidden")]
    shared = (module.meter.values, slots, Changing.common, Parent.everywhere)
    return {key: repr(value) for key, value in vars(module).items()} | {"m": repr(shared)}


CHANGES = [
    "list",
    "dict",
    "set",
    "queue",
    "raw",
    "meter.values",
    "plain",
    "new",
    "Changing.shared",
    "Changing.common",
    "Parent.everywhere",
    "slots.seen",
    "slots.late",
    "slots._Slotted__hidden",
    "array",
    "single",
    "holder.steps",
]


@pytest.mark.parametrize("name", CHANGES)
def test_python_state_that_changed_is_put_back_and_named(name: str) -> None:
    module = Changing()
    before = told(module)
    state = ModuleState(torch, [module], [], set())  # type: ignore[list-item]
    module.change(name)

    changed = state.restore()

    assert told(module) == before
    assert Changing.shared == 0
    assert any(name.rpartition(".")[2] in one for one in changed)


def test_more_than_can_be_put_back_is_refused() -> None:
    module = Changing()
    module.list = [[number] for number in range(20_000)]  # type: ignore[assignment]
    with pytest.raises(Abstain, match="more objects than can be put back"):
        ModuleState(torch, [module], [], set())  # type: ignore[list-item]
    module.list, module.array = [], np.zeros((1 << 26) // 8 + 1)
    with pytest.raises(Abstain, match=r"Changing\.array is an array too large"):
        ModuleState(torch, [module], [], set())  # type: ignore[list-item]


def test_python_state_that_did_not_change_is_not_named() -> None:
    assert ModuleState(torch, [Changing(), nn.LSTM(3, 3)], [], set()).restore() == []  # type: ignore[list-item]


def test_the_guard_puts_back_tensors_generators_and_gradients_even_after_an_exception() -> None:
    module, parameter = Changing(), nn.Parameter(torch.ones(2))
    grad = parameter.grad = torch.full((2,), 5.0)
    states = [torch.get_rng_state(), module.noise.get_state(), module.dice.getstate(), random.getstate()]
    version = module.running._version

    def interrupted() -> None:
        with StateGuard(torch, Guarded([module], [parameter])):  # type: ignore[list-item]
            module.running.add_(1)
            module.cache.add_(1)
            torch.rand(3), torch.rand(3, generator=module.noise), module.dice.random(), random.random()
            parameter.grad = torch.zeros(2)
            torch._C._set_grad_enabled(False)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert torch.is_grad_enabled()
    assert parameter.grad is grad
    assert module.running.tolist() == [0, 0, 0]
    assert module.running._version == version
    assert module.cache.tolist() == [0, 0]
    now = [torch.get_rng_state(), module.noise.get_state(), module.dice.getstate(), random.getstate()]
    for before, after in zip(states, now, strict=True):
        assert torch.equal(before, after) if isinstance(before, torch.Tensor) else before == after


def test_parameters_of_a_diverged_job_were_not_written_for_being_nan() -> None:
    module = nn.Linear(2, 2)
    with torch.no_grad():
        module.weight.fill_(float("nan"))
    with StateGuard(torch, Guarded([module], list(module.parameters())), trial=True) as guard:  # type: ignore[list-item]
        module(torch.ones(1, 2))
    assert guard.changes == []


def test_the_guard_names_a_parameter_that_was_written() -> None:
    module = nn.Linear(2, 2)
    with torch.no_grad(), StateGuard(torch, Guarded([module], list(module.parameters()))) as guard:  # type: ignore[list-item]
        module.weight.add_(1)
    assert guard.changes == ["a parameter"]


def test_our_own_hooks_and_those_on_parameters_are_silent_under_the_guard_and_back_after_it() -> None:
    module = nn.Linear(2, 2)
    fired: list[str] = []
    module.weight.register_hook(lambda grad: fired.append("parameter"))

    def ours(*_: object) -> None:
        fired.append("ours")

    ours.__module__ = "autobrrr.injected.phases.phase_hooks"
    module.register_forward_hook(ours)
    module.register_forward_hook(lambda *_: fired.append("theirs"))
    with StateGuard(torch, Guarded([module], list(module.parameters()))):  # type: ignore[list-item]
        torch.autograd.grad(module(torch.ones(1, 2)).sum(), list(module.parameters()))
        assert fired == ["theirs"]
    assert fired == [], "what a hook closes over is put back"
    module(torch.ones(1, 2)).sum().backward()
    assert fired == ["ours", "theirs", "parameter"]


@pytest.mark.parametrize(
    "body",
    [
        lambda: torch.randn(3, 4, requires_grad=True) @ torch.randn(4, 5),
        lambda: functional.conv2d(torch.randn(2, 3, 8, 8), torch.randn(6, 3, 3, 3, requires_grad=True)),
        lambda: functional.linear(torch.randn(3, 4), torch.randn(5, 4, requires_grad=True), torch.randn(5)),
        lambda: torch.bmm(torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 4, 5)),
    ],
)
def test_flops_agree_with_torch_own_counter(body: Callable[[], torch.Tensor]) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    counted = 0

    def handler(
        operator: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        nonlocal counted
        result = operator(*args, **kwargs)
        counted += op_flops.of(operator, args, result)
        return result

    with dispatch_mode(torch, handler):
        body().sum().backward()
    with FlopCounterMode(display=False) as official:
        body().sum().backward()
    assert counted == official.get_total_flops() > 0


def test_a_module_without_a_file_is_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether torch's own compiled modules stand in `sys.modules` depends on what was imported."""
    monkeypatch.setitem(sys.modules, "torch._C._nn", types.ModuleType("torch._C._nn"))
    monkeypatch.setitem(sys.modules, "made_up", types.ModuleType("made_up"))
    installed_code.is_library.cache_clear()
    assert installed_code.is_library("torch._C._nn")
    assert not installed_code.is_library("made_up")
    installed_code.is_library.cache_clear()
