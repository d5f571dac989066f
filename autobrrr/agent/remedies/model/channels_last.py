"""`layout.channels_last`: convolution weights with the channels innermost, as most fast kernels want them.

As `model.to(memory_format=torch.channels_last)` would in the script, right after the model's first call.
Inputs follow by themselves, because a convolution takes the layout of its weight. In a job that runs,
optimizer state and views of weights lie in the old order, so it waits for the next start.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import cast

from ...live_torch.live_job import Job
from ...live_torch.torch_types import Tensor
from ..model_calls.call_layers import trained_roots
from ..registry import Refused, Undo, remedy


@remedy(
    "layout.channels_last",
    treats=("compute", "memory", "underfilled"),
    reach="relaunch",
    cls="rounding",
    doc="Lay out the weights of 4-D convolutions with the channels innermost.",
    targets=("layout.convolutions",),
    only_named=True,
)
def channels_last(job: Job, options: Mapping[str, object]) -> Undo:
    torch, roots = job.torch, trained_roots(job)
    kinds = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
    found = [part for root in roots for part in root.modules() if isinstance(part, kinds)]
    weights = [(part, _weight(part)) for part in found if _weight(part) is not None]
    if not weights:
        raise Refused("the model has no 2-D convolution")
    if any(str(each.device) == "cpu" and each.is_shared() for _, each in weights):
        raise Refused("the parameters lie in memory that other processes write")  # each would get its own
    innermost = torch.channels_last
    todo = weakref.WeakSet(part for part, each in weights if not each.is_contiguous(memory_format=innermost))
    if not todo:
        raise Refused("its convolutions are channels_last already, or too small to differ")

    def lay_out(memory_format: object) -> None:
        for part in todo:
            if (weight := _weight(part)) is not None:  # a script may have taken it away
                weight.data = weight.data.contiguous(memory_format=memory_format)

    lay_out(innermost)
    return lambda: lay_out(torch.contiguous_format)


def _weight(convolution: object) -> Tensor:
    """Its own parameter; None where the weight is computed from others."""
    return cast(Tensor, vars(convolution)["_parameters"].get("weight"))
