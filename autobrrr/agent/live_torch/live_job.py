"""What the agent knows of the job, as remedies see it: live objects, never copies.

Holds weak references only: the agent must not keep the user's objects alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import ModuleType

from .compiled_code import CompiledCheck
from .torch_types import Tensor


class Job:
    """The live objects of the training loop, as far as hooks have shown them."""

    def __init__(self, torch: ModuleType) -> None:
        self.torch = torch
        self.check = CompiledCheck()
        """Whether the job compiles; the code of a remedy that is off is none of its."""
        self._optimizers: list[weakref.ref[object]] = []
        self._roots: list[weakref.ref[object]] = []
        self._loaders: list[weakref.ref[object]] = []
        self._iterator: weakref.ref[object] | None = None
        self.batch_bytes = 0
        """Of the last batch that was looked at; 0: none has been."""
        self.ddp_arguments: dict[str, object] | None = None
        """Keyword arguments of the DistributedDataParallel that is being made just now."""
        self.held_up: Callable[[int], None] = lambda ns: None
        """Told how long a remedy held a step up from within, to compile a call of it."""
        self.planned = False
        """Whether the remedy which is being applied stands in a recipe that the job was started with."""
        self.prepares = False
        """Whether the remedy which is being applied only shows what it would compile."""
        self.emit: Callable[[dict[str, object]], None] = lambda event: None
        """Sends an event to the sidecar, from any thread."""

    @property
    def optimizers(self) -> list[object]:
        """Optimizers that have stepped, in the order in which they fire."""
        return _alive(self._optimizers)

    @property
    def roots(self) -> list[object]:
        """Modules that the loop calls directly."""
        return _alive(self._roots)

    @property
    def loaders(self) -> list[object]:
        """DataLoaders that were asked for an iterator while somebody looked."""
        return _alive(self._loaders)

    @property
    def iterator(self) -> object | None:
        """The DataLoader iterator that training reads."""
        return None if self._iterator is None else self._iterator()

    @property
    def evaluates(self) -> bool:
        """Whether a job that trains runs without gradients at this moment."""
        return bool(self._optimizers) and not self.torch.is_grad_enabled()

    @property
    def updated(self) -> list[Tensor]:
        """Parameters that the optimizers update."""
        groups = [group for one in self.optimizers for group in getattr(one, "param_groups", ())]
        return [parameter for group in groups for parameter in group["params"]]

    def saw_optimizer(self, optimizer: object) -> bool:
        """Remember an optimizer; whether it is a new one."""
        return _remember(self._optimizers, optimizer)

    def saw_root(self, module: object) -> bool:
        """Remember a root module; whether it is a new one."""
        return _remember(self._roots, module)

    def saw_loader(self, loader: object) -> bool:
        """Remember a DataLoader; whether it is a new one."""
        return _remember(self._loaders, loader)

    def saw_iterator(self, iterator: object) -> None:
        """Training has asked this iterator for a batch."""
        self._iterator = weakref.ref(iterator)


def _alive(refs: list[weakref.ref[object]]) -> list[object]:
    return [thing for thing in (ref() for ref in refs) if thing is not None]


def _remember(refs: list[weakref.ref[object]], thing: object) -> bool:
    if any(ref() is thing for ref in refs):
        return False
    refs[:] = [ref for ref in refs if ref() is not None]
    refs.append(weakref.ref(thing))
    return True
