"""`layout.channels_last`: convolution weights with the channels innermost, as most fast kernels want them.

As `model.to(memory_format=torch.channels_last)` would in the script, right after the model's first call.
Inputs follow by themselves, because a convolution takes the layout of its weight. In a job that runs,
optimizer state and views of weights lie in the old order, so it waits for the next start.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...live_torch.live_job import Job
from ...live_torch.parameter_places import places_of
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
    found = list(places_of(part for root in roots for part in root.modules() if isinstance(part, kinds)))
    weights = [(place, each) for place, each in found if place.name == "weight"]
    if not weights:
        raise Refused("the model has no 2-D convolution")
    innermost = torch.channels_last
    todo = [(place, each) for place, each in weights if not each.is_contiguous(memory_format=innermost)]
    if not todo:
        raise Refused("its convolutions are channels_last already, or too small to differ")
    places = [place for place, _ in todo]

    def lay_out(memory_format: object) -> None:
        for place in places:
            weight = place.parameter()
            if weight is not None:
                weight.data = weight.data.contiguous(memory_format=memory_format)

    lay_out(innermost)
    return lambda: lay_out(torch.contiguous_format)
