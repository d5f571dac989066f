"""`precision.autocast_fp16`: float16 inside the model, with a loss scale that the script knows nothing of.

Gradients are multiplied where they enter the model and divided where they reach its parameters, so that
what the script sees, clips and accumulates is of its usual size. A step whose gradients overflowed is
left out, and the scale halved, as torch's GradScaler does. Before training meets it, one forward and
backward at two scales must give the same gradients: a weight that is reached another way would not.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import cast

from ...live_torch.live_job import Job
from ...live_torch.module_checks import derived_attributes
from ...live_torch.pytrees import map_call
from ...live_torch.torch_types import Module, Tensor
from ..model_calls.call_layers import (
    Call,
    Rank,
    autocast_states,
    lead_through,
    needs_cuda,
    trained_roots,
)
from ..model_calls.call_results import map_tensors, refuse_unseen
from ..model_calls.compiled_call import CallsWatch, CompiledCall
from ..model_calls.rehearsal import Rehearsal, Wording
from ..optimizer.optimizer_flags import Optimizer, parameters
from ..registry import Refused, Undo, WatchedUndo, remedy
from .precision import refuse_half

FIRST_SCALE = 2.0**13
LARGEST_SCALE = 2.0**24
GROWS_AFTER = 1000  # steps without an overflow


class LossScale:
    """The scale of one model, and whether its gradients overflowed since the last step."""

    def __init__(self, torch: ModuleType, device: str) -> None:
        self._torch = torch
        self._found = torch.zeros((), device=device)
        self._one = torch.ones((), device=device)
        self.scale = FIRST_SCALE
        self.inside = False  # the model is being called by us
        self.used = False  # a backward has passed since the last step
        self.skipped = 0
        self._good = 0
        self.why: str | None = None  # it must go

    def unscaled(self, gradients: Sequence[Tensor | None], scale: float) -> list[Tensor | None]:
        """Gradients of parameters, divided; notes an overflow without waiting for the device."""
        present = [each for each in gradients if each is not None]
        if not present:
            return list(gradients)
        divided = self._torch._foreach_mul(present, 1 / scale)
        self._torch._amp_foreach_non_finite_check_and_unscale_(divided, self._found, self._one)
        self.used = True
        found = iter(divided)
        return [None if each is None else next(found) for each in gradients]

    def forget(self) -> None:
        """What was found so far counts for no step."""
        self._found.zero_()
        self.used = False

    def before_step(self, optimizer: Optimizer, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Leave the step out where gradients overflowed: an optimizer passes over what has no gradient."""
        if not self.used:
            return
        if any(callable(each) for each in [*args, *kwargs.values()]):
            self.why = "the optimizer is stepped with a closure"
        overflowed = bool(self._found)
        self.forget()
        if overflowed:
            for parameter in parameters(optimizer):
                parameter.grad = None
            self.scale, self._good = self.scale / 2, 0
            self.skipped += 1
            if self.scale < 1:
                self.why = "gradients overflow in float16 at every scale"
            return
        self._good += 1
        if self._good >= GROWS_AFTER and self.scale < LARGEST_SCALE:
            self.scale, self._good = self.scale * 2, 0


class TwoScales(Rehearsal):
    """Rehearses a module's call: at two scales, the same gradients."""

    def __init__(self, torch: ModuleType, module: Module, scale: LossScale) -> None:
        wording = Wording("it fails: ", "")
        super().__init__(torch, module, own_stream=False, wording=wording, forget=scale.forget)
        self._scale = scale

    def why_not(
        self, eager: Call, compiled: Call, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> str | None:
        """A reason not to call the module so; None where all is well."""
        scale, before = self._scale, self._scale.scale

        def at(value: float) -> Call:
            def call(*given: object, **named: object) -> object:
                scale.scale = value
                return compiled(*given, **named)

            return call

        try:
            why = super().why_not(at(1.0), at(2.0), args, kwargs)
        finally:
            scale.scale = before
        return None if why is None else f"float16 does not fit this model: {why}"


@remedy(
    "precision.autocast_fp16",
    treats=("compute", "memory"),
    reach="live",
    cls="changes-training",
    doc="Run the model's matrix products and convolutions in float16, with a loss scale.",
    targets=("precision.autocast", "module.code"),  # it swaps the parameters that compiled code holds
    needs=("cuda",),
    unproven=True,
)
def autocast_fp16(job: Job, options: Mapping[str, object]) -> Undo:
    needs_cuda(job)
    return scaled_autocast(job, "cuda")


def scaled_autocast(job: Job, device: str) -> Undo:
    """Switch it on for parameters on this kind of device.

    Raises:
        Refused: more than one model or optimizer, or something that is in half precision already.
    """
    torch, roots = job.torch, trained_roots(job)
    optimizers = cast("list[Optimizer]", job.optimizers)
    if len(roots) != 1 or len(optimizers) != 1:
        raise Refused(f"it understands one model with one optimizer, not {len(roots)} with {len(optimizers)}")
    (root,), (optimizer,) = roots, optimizers
    if any(cast(Module, each) is not root for each in job.roots):
        raise Refused("the model is wrapped, and gradients are exchanged before they are checked")
    refuse_half(torch, roots)
    if derived_attributes([root]):
        raise Refused("the model keeps tensors made of its parameters")
    scale = LossScale(torch, device)
    call = CompiledCall(TwoScales(torch, root, scale), _scaled(torch, root, scale, device), dynamic=False)
    with ExitStack() as undo:
        undo.callback(lead_through(root, Rank.PRECISION, _layer(torch, scale, call)))
        undo.callback(optimizer.register_step_pre_hook(scale.before_step).remove)
        applied = undo.pop_all()
    watch = CallsWatch([call])
    return WatchedUndo(applied.close, lambda: watch.trouble() or scale.why, times=watch.times)


def _layer(torch: ModuleType, scale: LossScale, scaled: CompiledCall) -> Callable[[Call], Call]:
    states = autocast_states(torch)

    def layer(below: Call) -> Call:
        ours = scaled.layer(below)

        def call(*args: object, **kwargs: object) -> object:
            if scale.inside or any(states()):  # called by us, or under the job's own autocast
                return below(*args, **kwargs)
            return ours(*args, **kwargs)

        return call

    return layer


def _scaled(torch: ModuleType, module: Module, scale: LossScale, device: str) -> Call:
    """The module's call in float16, between the two functions that scale and unscale."""
    enter, leave = _functions(torch, scale)
    remembered = weakref.ref(module)
    half, tensor = torch.float16, torch.Tensor

    def out_of(each: Tensor) -> object:
        whole = each.to(device=each.device, dtype=torch.float32) if each.dtype == half else each
        return enter(whole) if whole.requires_grad else whole

    def into(leaf: object) -> object:
        marked = isinstance(leaf, tensor) and leaf.requires_grad
        return cast("tuple[object]", leave(leaf))[0] if marked else leaf

    def call(*args: object, **kwargs: object) -> object:
        refuse_unseen(torch, (args, kwargs))
        live = remembered()
        named = [(name, each) for name, each in live.named_parameters() if each.requires_grad]  # type: ignore[union-attr]
        views = cast("tuple[object, ...]", leave(*(each for _, each in named)))
        given, also = map_call(args, kwargs, into)
        scale.inside = True
        try:
            with torch.autocast(device, dtype=half):
                inside = {name: view for (name, _), view in zip(named, views, strict=True)}
                out = torch.func.functional_call(live, inside, tuple(given), also)
        finally:
            scale.inside = False
        return map_tensors(torch, out, out_of)

    return call


def _functions(torch: ModuleType, scale: LossScale) -> tuple[Call, Call]:
    """Both keep the scale of their own forward: a step may lie between it and their backward."""

    class Enter(torch.autograd.Function):  # type: ignore[name-defined,misc]
        """Identity; its gradient is multiplied."""

        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.scale = scale.scale
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):  # type: ignore[no-untyped-def]
            return gradient * ctx.scale

    class Leave(torch.autograd.Function):  # type: ignore[name-defined,misc]
        """Identity of many; their gradients are divided together."""

        @staticmethod
        def forward(ctx, *given):  # type: ignore[no-untyped-def]
            ctx.scale = scale.scale
            ctx.set_materialize_grads(False)
            return tuple(each.view_as(each) for each in given)

        @staticmethod
        def backward(ctx, *gradients):  # type: ignore[no-untyped-def]
            return tuple(scale.unscaled(gradients, ctx.scale))

    return Enter.apply, Leave.apply
