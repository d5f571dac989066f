"""`attention.sdpa`: which kernel computes `scaled_dot_product_attention`.

torch picks the first, in an order of its own, of those that are switched on and take the inputs. On a GPU
the one asked for goes first in that order and the others stay on, for inputs that it does not take. On a CPU,
which has a fixed order, the plain one stays beside the one asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from ...live_torch.live_job import Job
from ..model_calls.call_layers import device_types, trained_roots
from ..registry import Option, Refused, Undo, remedy, switch

KERNELS = ("flash", "mem_efficient", "cudnn", "math")
ON_CPU = ("flash", "math")
NUMBERS = {"math": 0, "flash": 1, "mem_efficient": 2, "cudnn": 3}  # torch.nn.attention.SDPBackend


@remedy(
    "attention.sdpa",
    treats=("memory", "compute", "overhead"),
    reach="live",
    cls="stream",  # each kernel draws its dropout in its own way
    doc="Choose the kernel of scaled_dot_product_attention.",
    targets=("attention.kernel",),
    options=(
        Option(
            name="kernel",
            kind="choice",
            choices=KERNELS,
            on_cuda=tuple(kernel for kernel in KERNELS if kernel not in ON_CPU),
            only_named=("math",),  # it keeps all weights of the attention: memory by the square of the length
            doc="The kernel to use where it takes the inputs; others, or the plain one, take over elsewhere.",
        ),
    ),
)
def sdpa(job: Job, options: Mapping[str, object]) -> Undo:
    wanted, place, inside = str(options.get("kernel")), job.torch.backends.cuda, job.torch._C
    on_gpu = "cuda" in device_types(trained_roots(job))
    known = [name for name in (KERNELS if on_gpu else ON_CPU) if hasattr(place, f"enable_{name}_sdp")]
    order = getattr(inside, "_get_sdp_priority_order", list)
    if wanted not in known or (on_gpu and not order()):
        raise Refused(f"this torch can't prefer the kernel {wanted} {'' if on_gpu else 'on a CPU '}to others")
    states = {name: getattr(place, f"{name}_sdp_enabled") for name in known}
    after = {name: name == wanted or (states[name]() if on_gpu else name == "math") for name in known}
    first = [NUMBERS[wanted], *(each for each in order() if each != NUMBERS[wanted])] if on_gpu else []
    if all(states[name]() == after[name] for name in known) and (not on_gpu or order() == first):
        raise Refused(f"the job uses {wanted} already")
    with ExitStack() as undo:
        if on_gpu:
            undo.callback(switch(order, inside._set_sdp_priority_order, first))
        for name in known:
            undo.callback(switch(states[name], getattr(place, f"enable_{name}_sdp"), after[name]))
        return undo.pop_all().close
