"""`attention.sdpa`: which kernel computes `scaled_dot_product_attention`.

torch picks one by itself, from those that are switched on. The one asked for is left on beside the plain
implementation, which stays as the way out for what the fast one does not take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..model_calls.call_layers import device_types, trained_roots
from ..optimizer.optimizer_flags import undo_all
from ..process.process_value import switch
from ..registry import Option, Refused, Undo, remedy

if TYPE_CHECKING:
    from autobrrr.injected.live_torch.live_job import Job

KERNELS = ("flash", "mem_efficient", "cudnn", "math")
ON_CPU = ("flash", "math")


@remedy(
    "attention.sdpa",
    treats=("memory", "compute", "overhead"),
    reach="live",
    cls="rounding",
    doc="Choose the kernel of scaled_dot_product_attention.",
    targets=("attention.kernel",),
    options=(
        Option(
            name="kernel",
            kind="choice",
            choices=KERNELS,
            on_cuda=tuple(kernel for kernel in KERNELS if kernel not in ON_CPU),
            only_named=("math",),  # it keeps all weights of the attention: memory by the square of the length
            doc="The kernel to use; the plain one, math, takes over what it does not take.",
        ),
    ),
    class_for=lambda job: "stream" if _drops(job) else "rounding",
)
def sdpa(job: Job, options: Mapping[str, object]) -> Undo:
    wanted = options.get("kernel")
    if wanted not in KERNELS:
        raise Refused(f"kernel must be one of {', '.join(KERNELS)}")
    roots = trained_roots(job)
    if device_types(roots) == {"cpu"} and wanted not in ON_CPU:
        raise Refused(f"there is no {wanted} kernel on a CPU")
    if not any(_attends(part) for root in roots for part in root.modules()):
        raise Refused("no module of the model calls scaled_dot_product_attention, as far as its code shows")
    place = job.torch.backends.cuda
    known = [name for name in KERNELS if hasattr(place, f"enable_{name}_sdp")]
    if wanted not in known:
        raise Refused(f"this torch has no switch for {wanted}")
    states = {name: getattr(place, f"{name}_sdp_enabled")() for name in known}
    after = {name: name in (wanted, "math") for name in known}
    if states == after:
        raise Refused(f"the job uses {wanted} already")
    undos: list[Callable[[], None]] = []
    for name in known:
        if states[name] != after[name]:
            read, write = getattr(place, f"{name}_sdp_enabled"), getattr(place, f"enable_{name}_sdp")
            undos.append(switch(read, write, after[name]))
    return undo_all(undos)


def _attends(module: object) -> bool:
    """Whether the module's own code names SDPA, or is one of torch's or transformers' that call it."""
    kind = type(module)
    if kind.__name__ in ("MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer"):
        return True
    implementation = getattr(getattr(module, "config", None), "_attn_implementation", None)
    if implementation is not None and "Attention" in kind.__name__:
        return bool(implementation == "sdpa")
    code = getattr(getattr(kind, "forward", None), "__code__", None)
    return code is not None and "scaled_dot_product_attention" in code.co_names


def _drops(job: Job) -> bool:
    """Whether attention may drop weights at random: each kernel draws in its own way."""
    for root in job.roots:
        for part in root.modules():  # type: ignore[attr-defined]
            for name, value in vars(part).items():
                if "drop" in name and isinstance(value, float) and value > 0:
                    return True
                if name == "p" and "Dropout" in type(part).__name__ and value and _attends(root):
                    return True
            if _attends(part) and any(float(getattr(each, "p", 0) or 0) > 0 for each in part.children()):
                return True
    return False
