"""Compiles a module before training meets the compiled code, and holds the result against eager.

In: a call of the module that training is about to make, on its real arguments. Forward and backward
run once eagerly and once compiled, on copies of the arguments' tensors and under a guard that puts random
states, buffers, gradients and other arguments back. Out: a reason not to use the compiled code, or none;
what calls take either way.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import InitVar, dataclass, field
from types import ModuleType
from typing import cast

from ...job_code.side_effect_scan import CodeScan
from ...job_code.unread_code import UnreadCode, unread_code_refused
from ...job_state.state_guard import Guarded, StateGuard, called_with, said_of
from ...live_torch.handler_errors import let_through
from ...live_torch.module_checks import derived_attributes, user_hooks
from ...live_torch.pytrees import leaves, map_call
from ...live_torch.torch_types import Abstain, Module, Tensor
from ..model.float32_settings import Float32Settings
from ..registry import Refused
from .call_layers import Call, said_of_error, watched_or_transformed
from .dynamo_footprint import Footprint, unmark, unmarked
from .timed_calls import CallTimes, Pair, call_times, enough

CLOSE = 1e-3  # norm of the difference against the norm, in full precision
CLOSE_IN_HALF = 5e-2
_ONCE_MORE = "once more in a rehearsal"
OF_NOISE = 3.0  # times as far from eager code as that is from itself


@dataclass(frozen=True, slots=True)
class Pass:
    """What one forward and backward left."""

    outputs: list[Tensor]
    gradients: list[Tensor | None]
    random: list[Tensor]  # states of torch's generators afterwards
    took_ns: float  # forward and backward, without the copies


@dataclass(frozen=True, slots=True)
class Wording:
    """How a reason begins: where the other way of calling fails, and where it gives something else."""

    fails: str = "it can't be compiled: "
    differs: str = "compiled, "


@dataclass(slots=True)
class Rehearsal:
    """Rehearses one module's calls. It does not keep the module alive: what is compiled is kept for long.

    Args:
        own_stream: The compiled code may draw other random numbers than eager code.
        settings: Settings of dynamo and functorch while it compiles: (module, name, value).
        forget: Called after calls were rehearsed or timed: what they left behind is no step's.
    """

    torch: ModuleType
    of: InitVar[Module]
    own_stream: bool
    settings: Sequence[tuple[str, str, object]] = ()
    wording: Wording = Wording()
    forget: Callable[[], None] = lambda: None
    _module: weakref.ref[Module] = field(init=False)
    _scan: CodeScan = field(init=False)

    def __post_init__(self, of: Module) -> None:
        """Read the forward code.

        Raises:
            Refused: it does what a second run would show to the outside.
        """
        self._scan = refuse_noticed(self.torch, [of], _ONCE_MORE)
        self._module = weakref.ref(of)

    @property
    def module(self) -> Module:
        """It lives: only its own calls ask."""
        return cast(Module, self._module())

    def _guard(self, args: Sequence[object], kwargs: Mapping[str, object]) -> StateGuard:
        parameters = list(self.module.parameters())
        guarded = Guarded(
            modules=[self.module],
            parameters=parameters,
            others=[*self._scan.findings.globals, *called_with(self.torch, args, kwargs)],
            written=parameters if self._scan.findings.writes_data else [],
            derived=derived_attributes([self.module]),
        )
        return StateGuard(self.torch, guarded)

    def obstacle(self) -> str | None:
        """Why its call may not be rehearsed just now: what the job has set since."""
        if watched_or_transformed(self.torch)():
            return "it is called within a checkpoint, a transform or a mode of the job's own"
        if not all(each.is_leaf for each in self.module.parameters()):
            # Under `functional_call`: a backward on these would free the job's graph.
            return "it is called with other parameters than its own"
        hook = next((spoken for spoken, _ in user_hooks([self.module])), None)
        return None if hook is None else f"{hook} would run once more"

    def why_not(
        self, eager: Call, compiled: Call, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> str | None:
        """Compile for these arguments; a reason not to call the compiled code with their like."""
        try:
            expected, changes = self._first_pass(eager, args, kwargs)
            if changes:
                return said_of(changes)
            with ExitStack() as undo:
                undo.enter_context(Footprint(self.torch))
                # Read while a graph is made, never after: in a saved model marks would travel on.
                undo.callback(unmark, unmarked([self.module]))
                for place in settings_in_force(self.settings):
                    undo.enter_context(place)
                found, _ = self._guarded_pass(compiled, args, kwargs)
            most = self._close(expected)
            why = self._difference(expected, found, most)
            if why is None or self._difference(expected, found, CLOSE_IN_HALF) is not None:
                return why
            # No more than rounding could explain it: eager calls of this model may differ as much.
            noise = self._own_noise(eager, args, kwargs, expected)
            return self._difference(expected, found, max(most, min(OF_NOISE * noise, CLOSE_IN_HALF)))
        except Exception as error:  # noqa: BLE001
            let_through(error)
            return f"{self.wording.fails}{said_of_error(error)}"
        finally:
            self.forget()

    def times(
        self, plain: Call, other: Call, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> CallTimes | None:
        """Calls either way in turn, on copies and under the guard; None where one fails after all."""
        pairs: list[Pair] = []
        try:
            while not enough(pairs):
                first, second = (plain, other) if len(pairs) % 2 == 0 else (other, plain)
                took = [self._guarded_pass(call, args, kwargs)[0].took_ns for call in (first, second)]
                pairs.append((took[0], took[1]) if first is plain else (took[1], took[0]))
        except Exception as error:  # noqa: BLE001
            let_through(error)
            return None
        finally:
            self.forget()
        return call_times(pairs)

    def forward_fails(self, call: Call, args: Sequence[object], kwargs: Mapping[str, object]) -> str | None:
        """What a forward alone, on copies and under the guard, ends in; None where it returns."""
        try:
            with self._guard(args, kwargs), unread_code_refused(self._scan.findings.read):
                given, named = map_call(args, kwargs, self._copy)
                call(*given, **named)
        except Exception as error:  # noqa: BLE001
            let_through(error)
            return said_of_error(error)
        return None

    def _first_pass(
        self, call: Call, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> tuple[Pass, list[str]]:
        """What it meets that was not read is read."""
        while True:
            try:
                return self._guarded_pass(call, args, kwargs, first=True)
            except UnreadCode as stopped:
                met = stopped.alone()
            refuse_seen(self._scan, self._scan.meet(met), _ONCE_MORE)

    def _guarded_pass(
        self, call: Call, args: Sequence[object], kwargs: Mapping[str, object], *, first: bool = False
    ) -> tuple[Pass, list[str]]:
        with self._guard(args, kwargs) as guard:
            if guard.in_graph:
                raise Abstain("a forward meets a tensor of a graph whose backward is the job's")
            with unread_code_refused(self._scan.findings.read) if first else nullcontext():
                done = self._pass(call, args, kwargs)
        return done, guard.changes

    def _pass(self, call: Call, args: Sequence[object], kwargs: Mapping[str, object]) -> Pass:
        torch = self.torch
        given, named = map_call(args, kwargs, self._copy)
        began_ns = self._now_ns()
        result = call(*given, **named)
        took_ns = self._now_ns() - began_ns
        outputs = [
            each
            for each in leaves(result)
            if isinstance(each, torch.Tensor) and (each.is_floating_point() or each.is_complex())
        ]
        ends = [each for each in outputs if each.requires_grad]
        if not ends:
            raise Refused("its output leads to no gradient")
        starts = [each for each in self.module.parameters() if each.requires_grad]
        starts += [
            each for each in leaves([given, named]) if isinstance(each, torch.Tensor) and each.requires_grad
        ]
        weights = [self._weights(each) for each in ends]
        began_ns = self._now_ns()
        gradients = torch.autograd.grad(ends, starts, weights, allow_unused=True)
        took_ns += self._now_ns() - began_ns
        random = [torch.get_rng_state()]
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            random.append(torch.cuda.get_rng_state())
        return Pass([each.detach() for each in outputs], list(gradients), random, took_ns)

    def _now_ns(self) -> int:
        """The time, once the device has done what it was given."""
        cuda = self.torch.cuda
        if cuda.is_available() and cuda.is_initialized():
            cuda.synchronize()
        return time.perf_counter_ns()

    def _copy(self, leaf: object) -> object:
        if not isinstance(leaf, self.torch.Tensor):
            return leaf
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)

    def _weights(self, output: Tensor) -> object:
        """Gradients to begin with: neither all alike, which a norm would cancel, nor random."""
        torch = self.torch
        flat = torch.arange(output.numel(), device=output.device, dtype=torch.float32)
        return flat.add_(1).cos_().reshape(tuple(output.shape)).to(output.dtype)

    def _own_noise(
        self, eager: Call, args: Sequence[object], kwargs: Mapping[str, object], expected: Pass
    ) -> float:
        """How far eager code is from itself, once more and with all bits of float32 products.

        Where TF32 is allowed another algorithm for a convolution rounds otherwise, by 1e-3 to 1e-2; where
        kernels add in no fixed order, so does the same one.
        """
        with Float32Settings(self.torch).exact():
            again, _ = self._guarded_pass(eager, args, kwargs)
        return max(
            self._distance(again.outputs, expected.outputs),
            self._distance(cast("list[Tensor]", again.gradients), cast("list[Tensor]", expected.gradients)),
        )

    def _close(self, expected: Pass) -> float:
        half = any(str(each.dtype) in ("torch.bfloat16", "torch.float16") for each in expected.outputs)
        half = half or any(str(each.dtype).endswith("float16") for each in self.module.parameters())
        return CLOSE_IN_HALF if half or self.torch.is_autocast_enabled() else CLOSE

    def _difference(self, expected: Pass, found: Pass, most: float) -> str | None:
        torch = self.torch
        same_draws = all(map(torch.equal, expected.random, found.random))
        if not same_draws:
            if self.own_stream:
                return None  # other numbers were drawn: nothing to hold against each other
            return f"{self.wording.differs}it draws other random numbers (the option random = fast allows it)"
        for what, ours, theirs in (
            ("results", found.outputs, expected.outputs),
            ("gradients", found.gradients, expected.gradients),
        ):
            if len(ours) != len(theirs) or [each is None for each in ours] != [
                each is None for each in theirs
            ]:
                return f"{self.wording.differs}other {what} come out"
            off = self._distance(cast("list[Tensor]", ours), cast("list[Tensor]", theirs))
            if not off <= most:
                return f"{self.wording.differs}its {what} are off by {off:.1e}"
        return None

    def _distance(self, ours: list[Tensor], theirs: list[Tensor]) -> float:
        """Norm of all differences against the norm of what is expected; what is no number counts as 0."""
        torch = self.torch
        apart = whole = 0.0
        for mine, other in zip(ours, theirs, strict=True):
            if other is None:
                continue
            first, second = (torch.nan_to_num(self._parts(each)).float() for each in (mine, other))
            apart += float((first - second).square().sum())
            whole += float(second.square().sum())
        return 0.0 if apart == 0 else float((apart / whole) ** 0.5 if whole else float("inf"))

    def _parts(self, tensor: Tensor) -> Tensor:
        """Real numbers: of complex ones both parts."""
        plain = tensor.detach()
        if not plain.is_complex():
            return plain
        return cast(Tensor, self.torch.view_as_real(self.torch.resolve_conj(plain)))


def refuse_noticed(torch: ModuleType, modules: list[Module], again: str) -> CodeScan:
    """What the forward code of modules reaches, where nobody would notice that it runs `again`.

    Raises:
        Refused: hooks of the job's own, or code that is seen from outside.
    """
    hooks = [spoken for spoken, _ in user_hooks(modules)]
    if hooks:
        raise Refused(f"{hooks[0]} would run {again}")
    scan = CodeScan(torch)
    refuse_seen(scan, scan.steps(modules), again)
    return scan


def refuse_seen(scan: CodeScan, steps: Iterable[str], again: str) -> None:
    """Take steps of a scan.

    Raises:
        Refused: code that was read is seen from outside.
    """
    for _ in steps:
        pass
    refusal = scan.findings.refusal(output_too=True)
    if refusal is not None:
        raise Refused(f"{refusal}: it would do so {again}")


def settings_in_force(
    settings: Sequence[tuple[str, str, object]],
) -> Iterator[AbstractContextManager[object]]:
    """Contexts in which settings of torch's compiler hold.

    Args:
        settings: (module, name, value); what this torch does not have is left out.
    """
    import importlib

    for place, name, value in settings:
        config = importlib.import_module(place)
        if hasattr(config, name):
            of_config = hasattr(type(config), "patch")
            yield config.patch({name: value}) if of_config else _set(config, name, value)


@contextmanager
def _set(place: ModuleType, name: str, value: object) -> Iterator[None]:
    before = getattr(place, name)
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, before)
