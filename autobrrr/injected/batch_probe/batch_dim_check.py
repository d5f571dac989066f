"""Finds and proves the batch dimension of every root call, one forward at a time.

`checks` is a generator: each step runs one forward of a root module, in evaluation mode, without
a gradient, under the guard; its caller spreads the steps over step boundaries.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import cast

from ..job_code.unread_code import unread_code_refused
from ..job_state.autocast_state import AutocastSwitch
from ..job_state.state_guard import Guarded, unchanged
from ..live_torch.dispatch_modes import Mode, Operator, dispatch_mode, own_code_refused
from ..live_torch.handler_errors import raised_by_handler
from ..live_torch.pytrees import leaves
from ..live_torch.torch_types import Abstain, Module, Tensor, is_tensor
from .batch_dim import Slicing, close, compare, describe, is_mean_or_sum, proposals, rows
from .step_recorder import Node
from .step_tape import Tape

Forward = Callable[[Node, dict[int, Tensor]], list[Tensor]]
_LOOKS = 3  # at what a forward takes: the first is the dearest
# fmt: off
_SAMPLERS = frozenset((
    "rand", "rand_like", "randn", "randn_like", "normal", "normal_", "uniform_", "bernoulli", "bernoulli_",
    "exponential_", "log_normal_", "cauchy_",
))
# fmt: on


class Forwards:
    """Runs a root call on given tensors: evaluation mode, no gradient, guarded."""

    def __init__(self, torch: ModuleType, guarded: Guarded) -> None:
        self._torch = torch
        self._guarded = guarded
        self._tried: set[int] = set()
        self._seen: set[int] = set()  # calls: what is not to run is looked for in the first forward

    def __call__(self, node: Node, tensors: dict[int, Tensor]) -> list[Tensor]:
        """The tensors in the result, detached.

        Raises:
            Abstain: the forward changes module state.
        """
        torch = self._torch
        module = cast(Module, node.target)
        args, kwargs = node.filled(tensors)
        switch, quiet = AutocastSwitch(torch), quiet_random(torch)
        trial = id(module) not in self._tried
        self._tried.add(id(module))
        seen = id(node) in self._seen
        self._seen.add(id(node))
        own = nullcontext() if seen else own_code_refused(torch)
        # In an ExitStack, what is raised instead would keep its frames, and all that the replay has made.
        unread = nullcontext() if seen else unread_code_refused(self._guarded.read)
        with unchanged(torch, self._guarded, trial=trial), own, unread:
            for part in module.modules():
                part.__dict__["training"] = False
            if hasattr(torch.backends, "mha"):
                torch.backends.mha.set_fastpath_enabled(False)
            torch._C._set_grad_enabled(False)
            with closing(switch):
                switch.to(node.cast)
                with quiet:
                    result = module(*args, **kwargs)
            return [part.detach() for part in leaves(result) if is_tensor(part, torch)]


def quiet_random(torch: ModuleType) -> Mode:
    """A dispatch mode, not yet entered, in which samplers give 0.5.

    Half a batch draws other numbers than the batch does, so a forward that samples (a variational
    autoencoder) could never be compared with its halves.
    """

    def handler(operator: Operator, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        result = operator(*args, **kwargs)
        name = str(getattr(operator, "__name__", "")).partition(".")[0]
        if name in _SAMPLERS and isinstance(result, torch.Tensor):
            result.fill_(0.5)
        return result

    return dispatch_mode(torch, handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The pause at a step boundary in which forwards may run.

    Attributes:
        moment: The number of the boundary: weights change between two of them, so only results of one
            boundary can be compared.
        clock: Nanoseconds.
        limit_ns: How long a pause may be.
        left_ns: How much of this one is left.
    """

    moment: Callable[[], int]
    clock: Callable[[], int]
    limit_ns: Callable[[], int]
    left_ns: Callable[[], int]


def checks(
    torch: ModuleType, tape: Tape, forward: Forward, pause: Pause
) -> Generator[str, None, dict[int, Slicing]]:
    """Yields what is being checked after each comparison; returns the slicing by node number.

    Args:
        forward: Runs a root call on given tensors.
        pause: Whatever is compared fits into one, its first forward apart: nobody knows what that takes.

    Raises:
        Abstain: a root call has no batch dimension that its halves confirm, or a pause no room for them.
    """
    found: dict[int, Slicing] = {}
    done: dict[tuple[object, ...], Slicing] = {}
    for index, node in enumerate(tape.nodes):
        if node.kind != "module" or not needs_proof(cast(Module, node.target)):
            continue
        numbers = node.inputs
        signature = (id(node.target), *(tape.values[number].shape for number in numbers))
        if signature not in done:
            done[signature] = yield from _Proof(torch, tape, node, forward, pause).steps()
        found[index] = done[signature]
    if not found:
        raise Abstain("no module with parameters is called in the step")
    smallest = min(slicing.size for slicing in found.values())
    if any(slicing.size % smallest for slicing in found.values()):
        sizes = sorted({slicing.size for slicing in found.values()})
        raise Abstain(f"the root calls of a step have different batch sizes ({', '.join(map(str, sizes))})")
    return found


def needs_proof(module: Module) -> bool:
    """Loss modules and the like, without parameters, are replayed like functions."""
    return next(iter(module.parameters()), None) is not None


class _Proof:
    """The proof for one root call."""

    def __init__(
        self,
        torch: ModuleType,
        tape: Tape,
        node: Node,
        forward: Forward,
        pause: Pause,
    ) -> None:
        numbers = node.inputs
        self._torch = torch
        self._node = node
        self._numbers = numbers
        self._forward = forward
        self._pause = pause
        self._name = type(node.target).__name__
        values = [tape.values[number] for number in numbers]
        if any(value.tensor is None for value in values) or not values:
            raise Abstain(f"{self._name} is called without a tensor")
        self._stays = [value.stays for value in values]
        self._tensors = [cast(Tensor, value.tensor) for value in values]
        self._versions = [value.version for value in values]
        self._full: list[Tensor] = []
        self._full_at: int | None = None
        self._whole_ns: int | None = None  # the quickest forward of the whole batch

    def steps(self) -> Generator[str, None, Slicing]:
        """Yields wherever the next forward may as well wait for another boundary."""
        name, activity = self._name, f"checking the batch dimension of {self._name}"
        yield from self._room(2, activity)
        self._check_repeatable()
        yield activity
        shapes = describe(self._torch, self._tensors, self._stays)
        untold: list[Slicing] = []
        for slicing in proposals(shapes):
            half = slicing.size // 2
            # The second half first: there a time dimension fails.
            yield from self._room(2, activity)
            confirmed = self._confirms(slicing, None, (half, slicing.size))
            yield activity
            if confirmed is None:
                continue
            yield from self._room(2, activity)
            confirmed = self._confirms(slicing, (0, half), (half, slicing.size))
            yield activity
            if confirmed:
                return slicing
            if confirmed is False:
                untold.append(slicing)
        if len(untold) == 1:  # nothing speaks for it but that everything else is refuted
            return untold[0]
        if untold:
            raise Abstain(
                f"the results of {name} are the same for all samples, so its batch can't be verified"
            )
        if all(size < 2 for shape in shapes if not shape.stays for size in shape.sizes[:1]):
            raise Abstain(f"the batch of {name} holds one sample")
        raise Abstain(
            f"no dimension of the inputs of {name} is a batch: "
            "halves of the input don't give halves of the result"
        )

    def _whole(self) -> Slicing:
        return Slicing(size=1, dims=tuple(None for _ in self._tensors))

    def _check_repeatable(self) -> None:
        torch = self._torch
        full, again = self._reference(), self._run(self._whole(), 0, 1)
        if not full:
            raise Abstain(f"{self._name} gives no tensor")
        if len(again) != len(full) or not all(
            close(torch, one, other) for one, other in zip(full, again, strict=True)
        ):
            raise Abstain(f"the forward of {self._name} isn't repeatable: twice the same input, two results")

    def _room(self, forwards: int, activity: str) -> Generator[str, None, None]:
        """Yields until so many forwards of the whole batch, or halves that add up to them, fit into a pause.

        Raises:
            Abstain: they don't fit into a whole one.
        """
        for _ in range(_LOOKS):
            if self._has_room(forwards):
                return
            self._reference()
            yield activity
        if not self._has_room(forwards):
            limit_ms, needed_ms = self._pause.limit_ns() / 1e6, forwards * (self._whole_ns or 0) / 1e6
            spoken = f"to check the batch dimension of {self._name} would take {needed_ms:.0f} ms"
            raise Abstain(f"{spoken}, more than a pause may ({limit_ms:.0f} ms)")

    def _has_room(self, forwards: int) -> bool:
        made = self._full_at == self._pause.moment()
        return self._whole_ns is not None and (forwards - made) * self._whole_ns <= self._pause.left_ns()

    def _reference(self) -> list[Tensor]:
        """The result for the whole batch with the weights of this boundary."""
        if self._full_at != self._pause.moment():
            began_ns = self._pause.clock()
            self._full, self._full_at = self._run(self._whole(), 0, 1), self._pause.moment()
            took_ns = self._pause.clock() - began_ns
            self._whole_ns = took_ns if self._whole_ns is None else min(self._whole_ns, took_ns)
        return self._full

    def _run(self, slicing: Slicing, low: int, high: int) -> list[Tensor]:
        if any(
            tensor._version != version for tensor, version in zip(self._tensors, self._versions, strict=True)
        ):
            raise Abstain(f"the loop writes into the inputs of {self._name} in place")
        inputs = rows(self._torch, self._tensors, slicing, low, high)
        return self._forward(self._node, dict(zip(self._numbers, inputs, strict=True)))

    def _attempt(self, slicing: Slicing, span: tuple[int, int] | None) -> list[Tensor] | None:
        """The forward of some samples; None where the module refuses such an input."""
        if span is None:
            return None
        try:
            return self._run(slicing, *span)
        except Abstain:
            raise
        except Exception as error:  # the user's forward may raise anything on a wrong slicing
            if raised_by_handler(error):
                raise
            return None

    def _confirms(
        self, slicing: Slicing, first_span: tuple[int, int] | None, second_span: tuple[int, int]
    ) -> bool | None:
        """None: refuted. False: nothing speaks against it, nothing for it. True: confirmed."""
        torch, size, half = self._torch, slicing.size, slicing.size // 2
        full = self._reference()
        first, second = self._attempt(slicing, first_span), self._attempt(slicing, second_span)
        if second is None or len(second) != len(full):
            return None
        if first_span is not None and (first is None or len(first) != len(full)):
            return None
        begins: list[Tensor | None] = list(first) if first is not None else [None] * len(full)
        outcomes = [
            compare(torch, whole, parts, size, half)
            for whole, *parts in zip(full, begins, second, strict=True)
        ]
        if any(one is not None and not one.agrees for one in outcomes):
            return None
        if first is None or any(one is not None and one.telling for one in outcomes):
            return True
        numbers = [at for at, one in enumerate(outcomes) if one is None]
        pairs = [(float(first[at]), float(second[at])) for at in numbers]  # type: ignore[arg-type]
        if not all(
            is_mean_or_sum(torch, full[at], pair, size, half) for at, pair in zip(numbers, pairs, strict=True)
        ):
            return None
        return any(one != other for one, other in pairs)
