"""The small parts of the shadow probe: nests, views at another batch, code scan, module state, FLOPs."""

from __future__ import annotations

import math
import random
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional

from autobrrr.agent.shadow import flops, plan
from autobrrr.agent.shadow.code_scan import CodeScan
from autobrrr.agent.shadow.guard import Guard, Guarded
from autobrrr.agent.shadow.modes import dispatch_mode
from autobrrr.agent.shadow.module_state import ModuleState
from autobrrr.agent.shadow.recorder import Node
from autobrrr.agent.shadow.trees import Ref, leaves, map_tree, refs

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
    guess = plan.Guess(multiples=multiples)
    whole = plan.Plan(batch=8, order=[], feeds={}, guess=guess)
    return plan.arguments(node, {0: args[0]}, whole, 2)[0][1:]  # type: ignore[dict-item]


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


def scan(module: nn.Module) -> CodeScan:
    found = CodeScan(torch)
    for _ in found.steps([module]):  # type: ignore[list-item]
        pass
    return found


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Opens, "Opens.twice calls open"),
        (Logs, "Logs.forward uses logging"),
        (Hooks, "Hooks.forward calls register_hook"),
        (Gathers, "Gathers.forward uses torch.distributed"),
        (TellsItsKeeper, "Keeper.note calls print"),
    ],
)
def test_forward_code_that_can_be_seen_from_outside_is_named(kind: type[nn.Module], reason: str) -> None:
    assert reason in scan(kind()).findings.refusals


@pytest.mark.parametrize(
    "module", [Quiet(), nn.TransformerEncoderLayer(8, 2), nn.LSTM(3, 3), nn.BatchNorm1d(3)]
)
def test_forward_code_of_torch_and_mathematics_is_quiet(module: nn.Module) -> None:
    assert scan(module).findings.refusals == []


class Meter:
    count = 0

    def __init__(self) -> None:
        self.values = [1.0]


class Changing(nn.Module):
    shared = 0

    def __init__(self) -> None:
        super().__init__()
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


def told(module: Changing) -> dict[str, str]:
    """All of a module's Python state, as text."""
    return {key: repr(value) for key, value in vars(module).items()} | {"m": repr(module.meter.values)}


@pytest.mark.parametrize(
    "name", ["list", "dict", "set", "queue", "raw", "meter.values", "plain", "new", "Changing.shared"]
)
def test_python_state_that_changed_is_put_back_and_named(name: str) -> None:
    module = Changing()
    before = told(module)
    state = ModuleState(torch, [module], [], set())  # type: ignore[list-item]
    module.change(name)

    changed = state.restore()

    assert told(module) == before
    assert Changing.shared == 0
    assert any(name.rpartition(".")[2] in one for one in changed)


def test_python_state_that_did_not_change_is_not_named() -> None:
    assert ModuleState(torch, [Changing(), nn.LSTM(3, 3)], [], set()).restore() == []  # type: ignore[list-item]


def test_the_guard_puts_back_tensors_generators_and_gradients_even_after_an_exception() -> None:
    module, parameter = Changing(), nn.Parameter(torch.ones(2))
    grad = parameter.grad = torch.full((2,), 5.0)
    states = [torch.get_rng_state(), module.noise.get_state(), module.dice.getstate(), random.getstate()]
    version = module.running._version

    def interrupted() -> None:
        with Guard(torch, Guarded([module], [parameter])):  # type: ignore[list-item]
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


def test_the_guard_names_a_parameter_that_was_written() -> None:
    module = nn.Linear(2, 2)
    with torch.no_grad(), Guard(torch, Guarded([module], list(module.parameters()))) as guard:  # type: ignore[list-item]
        module.weight.add_(1)
    assert guard.changes == ["a parameter"]


def test_our_own_hooks_and_those_on_parameters_are_silent_under_the_guard_and_back_after_it() -> None:
    module = nn.Linear(2, 2)
    fired: list[str] = []
    module.weight.register_hook(lambda grad: fired.append("parameter"))

    def ours(*_: object) -> None:
        fired.append("ours")

    ours.__module__ = "autobrrr.agent.hooks"
    module.register_forward_hook(ours)
    module.register_forward_hook(lambda *_: fired.append("theirs"))
    with Guard(torch, Guarded([module], list(module.parameters()))):  # type: ignore[list-item]
        torch.autograd.grad(module(torch.ones(1, 2)).sum(), list(module.parameters()))
    assert fired == ["theirs"]
    module(torch.ones(1, 2)).sum().backward()
    assert fired == ["theirs", "ours", "theirs", "parameter"]


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
        counted += flops.of(operator, args, result)
        return result

    with dispatch_mode(torch, handler):
        body().sum().backward()
    with FlopCounterMode(display=False) as official:
        body().sum().backward()
    assert counted == official.get_total_flops() > 0
