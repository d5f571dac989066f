"""Counts and digests of a whole run, from the import of torch to the end: what it did, not what it prints.

In: torch, before the script's next line. Out: one line of JSON for each training step, and for each thing
beside them (seeds, datasets, checkpoints, processes), in a file. It slows the run: nothing is timed in it.
An error of ours ends the account, never the script.
"""

from __future__ import annotations

import atexit
import functools
import json
import math
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from types import FrameType, ModuleType
from typing import Any

from ..job_facts import own_files
from ..live_torch.compiled_code import frames_begun
from ..live_torch.dispatch_modes import Operator, dispatch_mode
from ..live_torch.job_signals import Ours
from ..live_torch.patches import around, patched
from ..loop.root_modules import make_hook
from ..phases.batch_shapes import batch_size, token_count
from . import op_flops, tensor_digests

SEED = 1729
FLOPS_EVERY = 4  # steps; operators are watched in one of so many, and the others run as they would
PLACED_STEPS = 3
MOST_PLACES = 400
ROWS_STEPS = 4000


@dataclass(slots=True)
class StepAccount:
    """What one training step held, from the end of the step before to the end of its own update.

    What was not seen is left out.

    Attributes:
        samples: By model: one step may call several.
        rows: A digest of each sample.
        flops: By the kind of number that large products are made of; None: not counted in this step.
        places: Outputs of modules: path, place in the source, digest, norm.
    """

    backwards: int = 0
    optimizers: int = 0
    samples: dict[int, int] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    evaluated: int = 0
    rows: list[str] = field(default_factory=list)
    loss: float | None = None
    flops: dict[str, int] | None = None
    places: list[tuple[str, str, int, float | None]] = field(default_factory=list)

    def line(self) -> dict[str, object]:
        """As it is written: of the models' samples and tokens, the largest."""
        most = {name: max(getattr(self, name).values(), default=None) for name in ("samples", "tokens")}
        return {**asdict(self), **most}


class WorkAudit:
    """The account of one process.

    Args:
        path: Where it is written.
    """

    def __init__(self, torch: ModuleType, path: str) -> None:
        self._torch = torch
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._pid = os.getpid()
        self._account = StepAccount()
        self._steps = 0
        self._depth = 0
        self._backwards = 0  # that run now: what a checkpoint computes again in them is no call of a model
        self._busy = False
        self._broken = False
        self._compiles = False
        self._mode: AbstractContextManager[object] | None = None
        self._models: dict[int, Any] = {}
        self._names: dict[int, str] = {}
        self._parameters: dict[int, Any] = {}
        self._before: dict[int, Any] = {}
        self._gradient: float | None = None
        self._noisy: dict[int, Any] = {}
        self._gradient_signs: list[float] = []
        self._anchor = 0

    def begin(self) -> None:
        """On the importing thread or ours, before the script goes on."""
        torch = self._torch
        self._seed()
        for owner, name in (
            (torch, "manual_seed"),
            (sys.modules.get("random"), "seed"),
            (sys.modules.get("numpy.random"), "seed"),
        ):
            spoken = f"{getattr(owner, '__name__', '')}.seed"
            patched(owner, name, around(functools.partial(self._seeded, spoken)))
        patched(torch, "save", around(self._saved))
        for name in ("trace", "trace_module"):
            patched(torch.jit, name, around(self._compiled))
        for name in ("backward", "grad"):
            patched(torch.autograd, name, around(self._backward_begins, self._backward_ends))
        patched(torch.utils.data.DataLoader, "__iter__", around(self._loads))
        modules = torch.nn.modules.module
        compiler = getattr(torch, "compiler", None)
        modules.register_module_forward_pre_hook(make_hook(compiler, self._enter))
        modules.register_module_forward_hook(make_hook(compiler, self._leave), always_call=True)
        optimizers = sys.modules["torch.optim.optimizer"]
        optimizers.register_optimizer_step_pre_hook(self._before_update)
        optimizers.register_optimizer_step_post_hook(self._updated)
        atexit.register(self._end)

    def _seed(self) -> None:
        """So that a script without a seed is the same run on both sides; one with a seed sets its own."""
        import random

        self._torch.manual_seed(SEED)
        random.seed(SEED)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(SEED)

    def _write(self, line: dict[str, object]) -> None:
        os.write(self._fd, json.dumps(line).encode() + b"\n")

    def _note(self, kind: str, what: object) -> None:
        if os.getpid() == self._pid and not self._broken:
            self._write({"note": kind, "what": what, "step": self._steps})

    def _guarded(self, work: Callable[[], None]) -> None:
        """Ours, with nothing of ours watching; never an error, and nothing in forked children."""
        if self._busy or self._broken or os.getpid() != self._pid:
            return
        self._busy = True
        try:
            with Ours(Exception, told=self._breaks), self._torch.no_grad():
                work()
        finally:
            self._busy = False

    def _breaks(self, error: Exception) -> None:
        """Ends the account, never the script."""
        self._note("broken", f"{type(error).__name__}: {error}")
        self._broken = True

    def _seeded(self, spoken: str, /, *args: object, **kwargs: object) -> None:
        value = (*args, *kwargs.values())[:1]
        self._guarded(lambda: self._note("seeded", f"{spoken}({', '.join(map(str, value))})"))

    def _saved(self, *args: object, **kwargs: object) -> None:
        saved = args[0] if args else kwargs.get("obj")
        self._guarded(lambda: self._note("saved", tensor_digests.elements(saved)))

    def _compiled(self, *_: object, **__: object) -> None:
        """From here on not every operator is seen: one kernel stands for several."""
        if not self._compiles:
            self._compiles = True
            self._note("compiled", None)

    def _loads(self, loader: object) -> None:
        self._guarded(lambda: self._note("dataset", _dataset(loader)))

    def _backward_begins(self, *args: Any, **kwargs: Any) -> None:
        def seen() -> None:
            tensors: Any = next(iter((*args, *kwargs.values())), None)
            self._account.backwards += 1
            if getattr(tensors, "numel", lambda: 0)() == 1:
                loss = float(tensors.detach())
                self._account.loss = loss if math.isfinite(loss) else None  # JSON has no other numbers

        if not self._backwards:
            self._guarded(seen)
            self._watch()
        self._backwards += 1

    def _backward_ends(self, *_: object, **__: object) -> None:
        self._backwards -= 1
        self._unwatch()

    def _passes(self) -> bool:
        """Whether a module's call is none of the script's: ours, a child's, a checkpoint's."""
        return self._busy or self._backwards > 0 or os.getpid() != self._pid

    def _enter(self, module: Any, args: Any) -> None:
        if self._passes():
            return
        self._depth += 1
        if self._depth == 1:
            trains = self._torch.is_grad_enabled() and module.training
            named = sys._getframe(2).f_locals.get("kwargs")  # of torch: it gives such a hook none by keyword
            given = (*args, *named.values()) if isinstance(named, dict) else args
            self._guarded(lambda: self._called(module, given, trains=trains))
            if trains:
                self._watch()

    def _leave(self, module: Any, args: Any, output: Any) -> None:
        if not self._depth or self._passes():
            return
        self._depth -= 1
        if not self._depth:
            self._unwatch()
        if self._steps < PLACED_STEPS and self._torch.is_grad_enabled():
            self._guarded(lambda: self._place(module, output))

    def _called(self, module: Any, args: Any, *, trains: bool) -> None:
        """A call of a whole model: what it is given is what it works on."""
        if id(module) not in self._models:
            self._know(module)
        if self._models[id(module)] is None:
            return
        size = max(0, batch_size(args))
        if not trains:
            self._account.evaluated += size
            return
        account, key = self._account, id(module)
        account.samples[key] = account.samples.get(key, 0) + size
        tokens = token_count(args)
        if tokens >= 0:
            account.tokens[key] = account.tokens.get(key, 0) + tokens
        found = next((each for each in args if hasattr(each, "element_size")), None)
        if found is not None and found.dim() and self._steps < ROWS_STEPS:
            account.rows += self._aside(lambda: tensor_digests.rows(self._torch, found))

    def _know(self, module: Any) -> None:
        """Models have parameters; losses, which are modules too, mostly have none."""
        held = list(module.parameters())
        self._models[id(module)] = module if held else None
        if held:
            for name, each in module.named_modules():
                self._names.setdefault(id(each), name or type(module).__name__)
        self._keep(held)

    def _keep(self, parameters: list[Any]) -> None:
        """A lazy one, which is not there before its first call, comes with its optimizer."""
        for each in parameters:
            if id(each) not in self._parameters and not self._torch.nn.parameter.is_lazy(each):
                self._parameters[id(each)] = each
                self._before[id(each)] = each.detach().clone()

    def _place(self, module: Any, output: Any) -> None:
        if len(self._account.places) >= MOST_PLACES or not hasattr(output, "element_size"):
            return
        name = self._names.get(id(module), type(module).__name__)
        torch = self._torch

        def digest() -> tuple[int, float | None]:
            return tensor_digests.bits(torch, output), tensor_digests.norm(torch, [output])

        value, length = self._aside(digest)
        self._account.places.append((name, _place_of(torch), value, length))

    def _watch(self) -> None:
        if self._mode is None and self._steps % FLOPS_EVERY == 0 and not self._broken:
            self._account.flops = self._account.flops or {}
            self._mode = dispatch_mode(self._torch, self._operator)
            self._mode.__enter__()

    def _unwatch(self) -> None:
        if self._mode is not None and not self._depth and not self._backwards:
            mode, self._mode = self._mode, None
            mode.__exit__(None, None, None)

    def _operator(self, operator: Operator, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        result = operator(*args, **kwargs)
        flops = 0 if self._busy else op_flops.of(operator, args, result)
        if flops and self._account.flops is not None:
            first = result[0] if isinstance(result, (tuple, list)) and result else result
            kind = str(getattr(first, "dtype", "")).removeprefix("torch.")
            self._account.flops[kind] = self._account.flops.get(kind, 0) + flops
        return result

    def _aside(self, work: Callable[[], Any]) -> Any:
        """Without the mode that counts operators."""
        with self._torch.utils._python_dispatch._disable_current_modes():
            return work()

    def _before_update(self, optimizer: Any, *_: Any) -> None:
        def look() -> None:
            held = [each for group in optimizer.param_groups for each in group["params"]]
            self._keep(held)
            stepped = {id(each) for each in held}
            gradients = [each.grad if key in stepped else None for key, each in self._parameters.items()]
            self._gradient = tensor_digests.norm(self._torch, gradients)
            self._noisy = tensor_digests.noisy(
                self._torch, dict(zip(self._parameters, gradients, strict=True))
            )
            self._gradient_signs = tensor_digests.projections(self._torch, gradients)

        self._guarded(look)

    def _updated(self, optimizer: Any, *_: Any) -> None:
        self._guarded(lambda: self._close(id(optimizer)))

    def _close(self, optimizer: int) -> None:
        if frames_begun():
            self._compiled()
        account = self._account
        account.optimizers += 1
        self._anchor = self._anchor or optimizer
        if optimizer != self._anchor:
            return
        torch = self._torch
        moved: list[Any] = []
        changed, total, digest = 0, 0, 0
        for key, each in self._parameters.items():
            now, earlier = each.detach(), self._before[key]
            total += now.numel()
            digest = (digest * 1000003 + tensor_digests.bits(torch, now)) % (1 << 61)
            same_shape = earlier.shape == now.shape
            step = None
            if same_shape:
                step = (
                    tensor_digests.plain(torch, now).double() - tensor_digests.plain(torch, earlier).double()
                )
            if step is not None and key in self._noisy:
                step = step.masked_fill(self._noisy[key], 0.0)
            moved.append(step)
            if not same_shape or not torch.equal(earlier, now):
                changed += now.numel()
                self._before[key] = now.clone()
        self._write(
            {
                "step": self._steps,
                **account.line(),
                "gradient": self._gradient,
                "parameters": digest,
                "moved": tensor_digests.norm(torch, moved),
                "gradient_signs": self._gradient_signs,
                "moved_signs": tensor_digests.projections(torch, moved),
                "updated": changed,
                "elements": total,
                "precision": _precision(torch),
            }
        )
        self._gradient, self._gradient_signs, self._noisy = None, [], {}
        self._account = StepAccount()
        self._steps += 1
        if self._steps == 2:
            self._look_around()

    def _look_around(self) -> None:
        for folder in sorted({os.path.dirname(os.path.realpath(file)) for file in own_files(sys.modules)}):
            self._note("imported", folder)

    def _end(self) -> None:
        if os.getpid() == self._pid and not self._broken:
            self._look_around()
            self._write({"end": self._steps, "evaluated": self._account.evaluated})


def _precision(torch: ModuleType) -> str:
    """The lowest of float32 products on any device, in the words of torch's old flag."""
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:  # the script has set `fp32_precision`
        backends = torch.backends
        held = {backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision}
        return "medium" if "bf16" in held else "high" if "tf32" in held else "highest"


def _dataset(loader: Any) -> int | None:
    """Samples of the dataset; None where it has no length."""
    try:
        return len(loader.dataset)
    except (TypeError, NotImplementedError):
        return None


def _place_of(torch: ModuleType) -> str:
    """File and line of the nearest caller that is not torch's."""
    home = os.path.dirname(str(torch.__file__))
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((home, "<")) and os.path.isabs(file):
            return f"{os.path.basename(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
