"""Training jobs that a probe must refuse: a replay would change them, or show something twice.

`REFUSED` names the reason that has to be given.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import ClassVar
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from support.batch_probe.shadow import Job, mlp, supervised
from support.batch_probe.shadow_loop import Kind, OneLayer


class Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        gathered = torch.zeros(nodes.shape[0], 8).index_add(0, edges[1], self.first(nodes)[edges[0]])
        return self.second(gathered.relu())


def graph_network() -> Kind:
    model = Graph()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    nodes, edges, labels = torch.randn(20, 6), torch.randint(0, 20, (2, 60)), torch.randint(0, 3, (20,))

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(nodes, edges), labels).backward()
        optimizer.step()

    return Kind([model, optimizer], step)


class KeepsHidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(12, 8), nn.Linear(8, 4)
        self.hidden = torch.zeros(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.cell(x, self.hidden)
        self.hidden = hidden.detach()
        return self.head(hidden)


class MixesSamples(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.head = nn.MultiheadAttention(12, 2), nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.mix(x, x, x)[0])


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.calls = nn.Linear(12, 4), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.linear(x) / (1 + self.calls % 2)


class Prints(OneLayer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.report(x)
        return self.linear(x)

    def report(self, x: torch.Tensor) -> None:
        print("mean", x.mean().item())


class Collects(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 4)
        self.log: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.log.append(x.shape[0])
        return self.linear(x)


class TrainsItself(OneLayer):
    """Writes its own weight in forward, past the version counter."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        getattr(self.linear.weight, "".join(("da", "ta"))).mul_(0.999)
        return self.linear(x)


class TellsItsClass(OneLayer):
    told: ClassVar[list[int]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.told.append(x.shape[0])
        return self.linear(x) * (1 + len(self.told) % 2)


class CountsInAnArray(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.seen = nn.Linear(12, 4), np.zeros(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen[0] += 1
        return self.linear(x) * (1 + float(self.seen[0]) % 2)


class TakesTurns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scales = nn.Linear(12, 4), itertools.cycle((1.0, 2.0, 3.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * next(self.scales)


class StepsInside(OneLayer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.linear.bias.add_(0.01)
        return self.linear(x)


CALLS: list[int] = []


class TellsAGlobal(OneLayer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        CALLS.append(x.shape[0])
        return self.linear(x)


def trap(model: Callable[[], nn.Module]) -> Job:
    """A plain loop around a module that should not be replayed."""

    def make() -> Kind:
        return supervised(model(), torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8)))

    return make


def user_hook_on_a_module() -> Kind:
    kind = mlp()
    model = kind.parts[0]
    assert isinstance(model, nn.Sequential)
    model[0].register_forward_hook(lambda *_: kind.shown.append("forward"))
    return kind


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2


def function_beside_the_model() -> Kind:
    """Half of the loss comes through a function that replays would run without its gradient."""
    model = nn.Linear(12, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        out = model(torch.randn(8, 12))
        (out.square().mean() + Doubled.apply(out).mean()).backward()
        optimizer.step()

    return Kind([model, optimizer], step)


def gradient_penalty() -> Kind:
    critic = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        x = torch.randn(8, 12).requires_grad_()
        score = critic(x).sum()
        (slope,) = torch.autograd.grad(score, x, create_graph=True)
        (score + (slope.norm(dim=1) - 1).square().mean()).backward()
        optimizer.step()

    return Kind([critic, optimizer], step)


def no_module_at_all() -> Kind:
    weight = nn.Parameter(torch.randn(12, 4))
    optimizer = torch.optim.SGD([weight], lr=0.01)
    x = torch.randn(8, 12)

    def step() -> None:
        optimizer.zero_grad()
        (x @ weight).square().mean().backward()
        optimizer.step()

    return Kind([optimizer], step)


class Scaled(torch.Tensor):
    """Keeps a running maximum of what goes through a layer, as recipes for 8-bit floats do."""

    largest = 1.0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = super().__torch_function__(func, types, args, kwargs or {})
        if func is nn.functional.linear:
            plain = args[0].as_subclass(torch.Tensor).detach()
            Scaled.largest = 0.9 * Scaled.largest + 0.1 * float(plain.abs().max())
            return out / Scaled.largest
        return out


class Wrapped(torch.Tensor):
    """Counts the operators that it takes part in, and its results are plain."""

    seen = 0
    inner: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def of(inner: torch.Tensor) -> Wrapped:
        made = torch.Tensor._make_subclass(Wrapped, inner)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        Wrapped.seen += 1
        plain = [part.inner if isinstance(part, Wrapped) else part for part in args]
        return func(*plain, **(kwargs or {})) / (1 + Wrapped.seen % 3)


class WrapsInside(OneLayer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * torch.mul(Wrapped.of(x.detach()), 0.5).mean()


def of_a_kind(wrap: Callable[[torch.Tensor], torch.Tensor]) -> Job:
    """A step whose input is a tensor of the job's own kind, which keeps state."""

    def make() -> Kind:
        Scaled.largest, Wrapped.seen = 1.0, 0
        model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def step() -> None:
            optimizer.zero_grad()
            model(wrap(torch.randn(8, 12))).square().mean().backward()
            optimizer.step()

        return Kind([model, optimizer], step)

    return make


def wraps_inside() -> Kind:
    Wrapped.seen = 0
    return trap(WrapsInside)()


OPERATORS = torch.library.Library("of_the_job", "DEF")
OPERATORS.define("scaled(Tensor x) -> Tensor")
TIMES_CALLED = [0]


def times_called(x: torch.Tensor) -> torch.Tensor:
    """What it gives depends on how often it was called."""
    TIMES_CALLED[0] += 1
    return x * (1 + TIMES_CALLED[0] % 3)


OPERATORS.impl("scaled", times_called, "CompositeImplicitAutograd")


class CallsAnOperator(OneLayer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.of_the_job.scaled(self.linear(x))


class CountsWhatGoes(OneLayer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.linear(x) * (1 + TIMES_CALLED[0] % 3)
        weakref.finalize(out, lambda: TIMES_CALLED.__setitem__(0, TIMES_CALLED[0] + 1))
        return out


class CallsWhatItIsGiven(OneLayer):
    def forward(self, x: torch.Tensor, what: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        return what(self.linear(x))


def calls_counted(model: type[nn.Module], *more: object) -> Job:
    """Steps that depend on how often `times_called` was called."""

    def make() -> Kind:
        TIMES_CALLED[0] = 0
        layer = model()
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)

        def step() -> None:
            optimizer.zero_grad()
            layer(torch.randn(8, 12), *more).square().mean().backward()
            optimizer.step()

        return Kind([layer, optimizer], step)

    return make


def hooks_on_saved_tensors() -> Kind:
    """What backward needs is scaled by how often something was kept for it; the hooks end with the steps."""
    kind = trap(lambda: nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 4)))()
    TIMES_CALLED[0] = 0
    plain, hooks = kind.step, ExitStack()
    packed = torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: times_called(tensor) if tensor.is_floating_point() else tensor, lambda tensor: tensor
    )

    def step() -> None:
        if not kind.shown:
            kind.shown.append("on")
            hooks.enter_context(packed)
        plain()

    kind.step, kind.end = step, hooks.close
    return kind


def forward_as_a_function() -> Kind:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    teacher = nn.TransformerEncoder(layer, 2).eval().requires_grad_(False)
    student = nn.Linear(32, 32)
    optimizer = torch.optim.SGD(student.parameters(), 0.1)

    def step() -> None:
        x = torch.randn(8, 10, 32)
        with torch.no_grad():
            wanted = teacher.forward(x)
        optimizer.zero_grad()
        (student(x) - wanted).square().mean().backward()
        optimizer.step()

    return Kind([student, teacher, optimizer], step)


def a_batch_of_one() -> Kind:
    model = nn.Linear(12, 4)
    return supervised(model, torch.randn(4, 1, 12), torch.randint(0, 4, (4, 1)))


class Wrapper:
    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function

    def call(self, *args: object, **kwargs: object) -> object:
        return self.function(*args, **kwargs)


def wraps(owner: object, name: str, put: Callable[..., object] = lambda wrapped: wrapped) -> Job:
    """A function of torch's that the job has wrapped in its place, as it does for all its models."""

    def make() -> Kind:
        original = getattr(owner, name)
        model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        data, labels = torch.randn(8, 12), torch.randint(0, 4, (8,))

        def step() -> None:
            optimizer.zero_grad()
            functional.cross_entropy(model(data), labels).backward()
            optimizer.step()

        def wrapped(first: torch.Tensor, *args: object, **kwargs: object) -> object:
            kind.shown.append("called")
            return original(first * 0.5, *args, **kwargs)

        kind = Kind([model, optimizer], step, end=lambda: setattr(owner, name, original))
        setattr(owner, name, put(wrapped))
        return kind

    return make


REFUSED: dict[str, tuple[Job, str]] = {
    "loss that the job wrapped": (
        wraps(functional, "cross_entropy"),
        "replaced torch.nn.functional.cross_entropy",
    ),
    "loss that a method of the job's wraps": (
        wraps(functional, "cross_entropy", lambda wrapped: Wrapper(wrapped).call),
        "replaced torch.nn.functional.cross_entropy",
    ),
    "loss that the job wrapped with a decorator of torch's": (
        wraps(functional, "cross_entropy", torch.autocast("cpu", enabled=False)),
        "replaced torch.nn.functional.cross_entropy",
    ),
    "loss that a stand-in of the library's wraps": (
        wraps(functional, "cross_entropy", lambda wrapped: mock.Mock(side_effect=wrapped)),
        "replaced torch.nn.functional.cross_entropy",
    ),
    "backward that the job wrapped": (wraps(torch.Tensor, "backward"), "replaced Tensor.backward"),
    "graph network": (graph_network, "is a batch"),
    "hidden state kept": (trap(KeepsHidden), "own state"),
    "attention over the batch": (trap(MixesSamples), "is a batch"),
    "counter in forward": (trap(Counts), "own state (Counts.calls)"),
    "print in forward": (trap(Prints), "Prints.report calls print"),
    "list that grows in forward": (trap(Collects), "own state (Collects.log)"),
    "global list that grows in forward": (trap(TellsAGlobal), "(CALLS)"),
    "list of a class that grows in forward": (trap(TellsItsClass), "own state (TellsItsClass.told)"),
    "array that counts in forward": (trap(CountsInAnArray), "own state (CountsInAnArray.seen)"),
    "iterator that forward takes from": (trap(TakesTurns), "takes from self.scales, an iterator"),
    "weights written past the version counter": (trap(TrainsItself), "own state (a parameter)"),
    "weights written in forward": (trap(StepsInside), "own state (a parameter)"),
    "user's hook on a module": (user_hook_on_a_module, "forward hook on Linear would fire again"),
    "function beside the model": (function_beside_the_model, "function of the job's own"),
    "gradient of a gradient": (gradient_penalty, "create_graph"),
    "no module": (no_module_at_all, "no module"),
    "kind that sees functions": (of_a_kind(lambda x: x.as_subclass(Scaled)), "of the kind Scaled"),
    "kind that sees operators": (of_a_kind(Wrapped.of), "of the kind Wrapped"),
    "kind that sees operators, in forward": (wraps_inside, "sets Wrapped.seen"),
    "operator written in Python": (calls_counted(CallsAnOperator), "scaled is an operator written in Python"),
    "function handed to the model": (calls_counted(CallsWhatItIsGiven, times_called), "(TIMES_CALLED)"),
    "hooks on saved tensors": (hooks_on_saved_tensors, "on saved tensors are active"),
    "call when a result goes": (calls_counted(CountsWhatGoes), "when an object goes (finalize)"),
    "forward called as a function": (forward_as_a_function, "forward of an attention layer"),
    "batch of one": (a_batch_of_one, "one sample"),
}
