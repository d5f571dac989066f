"""Gradients copied out of the memory that a graph's next replay writes to.

Autograd keeps the tensor that a backward returns as `.grad`. Of a replayed backward that is the graph's own
memory: the next replay would write into the gradient that is being accumulated.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from ...live_torch.torch_types import Tensor
from ..registry import Refused
from .call_layers import CallableModule


def hold_gradients(module: CallableModule) -> Callable[[], None]:
    """Copy the gradients of a module's parameters before they are accumulated; returns the undo.

    Raises:
        Refused: a parameter has hooks already.
    """
    trained = [each for each in module.parameters() if each.requires_grad]
    if any(each._backward_hooks is not None for each in trained):
        raise Refused("parameters have hooks of the job's own")
    held = [(weakref.ref(each), each.register_hook(_copied)) for each in trained]  # type: ignore[attr-defined]

    def undo() -> None:
        for remembered, handle in held:
            handle.remove()
            parameter = remembered()
            if parameter is not None and not parameter._backward_hooks:
                parameter._backward_hooks = None

    return undo


def _copied(gradient: Tensor) -> Tensor:
    return gradient.clone()
