"""`attention.sdpa`: which kernel computes `scaled_dot_product_attention`.

torch picks the first, in an order of its own, of those that are switched on and take the inputs. On a GPU
the one asked for goes first in that order and the others stay on: masks, head sizes and types that it does
not take go where they went before, and not to the plain implementation, whose memory grows with the square
of the length; where it takes no call of the first step, the remedy is reverted, and its reason names one. On
a CPU, which has a fixed order, the plain one stays beside the one asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from ...live_torch.live_job import Job
from ..model_calls.call_layers import device_types, trained_roots
from ..process.process_value import switch
from ..registry import Option, Refused, Undo, WatchedUndo, remedy
from .attention_inputs import AttentionInputs

KERNELS = ("flash", "mem_efficient", "cudnn", "math")
ON_CPU = ("flash", "math")
NUMBERS = {"math": 0, "flash": 1, "mem_efficient": 2, "cudnn": 3}  # torch.nn.attention.SDPBackend


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
            doc="The kernel to use where it takes the inputs; others, or the plain one, take over elsewhere.",
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
        raise Refused("the model does not use scaled_dot_product_attention")
    place = job.torch.backends.cuda
    known = [name for name in KERNELS if hasattr(place, f"enable_{name}_sdp")]
    if wanted not in known:
        raise Refused(f"this torch has no switch for {wanted}")
    states = {name: getattr(place, f"{name}_sdp_enabled")() for name in known}
    inputs, looks = AttentionInputs(job.torch, str(wanted)), False
    with ExitStack() as undo:
        if "cuda" in device_types(roots):
            after = {**states, wanted: True}
            undo.callback(_put_first(job, str(wanted), states[wanted]))
            undo.callback(inputs.end)
            looks = inputs.begin()
        else:
            known = [name for name in known if name in ON_CPU]
            after = {name: name in (wanted, "math") for name in known}
            if all(states[name] == after[name] for name in known):
                raise Refused(f"the job uses {wanted} already")
        for name in known:
            if states[name] != after[name]:
                read, write = getattr(place, f"{name}_sdp_enabled"), getattr(place, f"enable_{name}_sdp")
                undo.callback(switch(read, write, after[name]))
        applied = undo.pop_all()
    return WatchedUndo(applied.close, inputs.trouble) if looks else applied.close


def _put_first(job: Job, wanted: str, enabled: bool) -> Undo:
    """Have torch try this kernel before the others.

    Raises:
        Refused: it comes first already, or this torch has one order for all.
    """
    inside, number = job.torch._C, NUMBERS[wanted]
    read = getattr(inside, "_get_sdp_priority_order", None)
    write = getattr(inside, "_set_sdp_priority_order", None)
    if read is None or write is None:
        raise Refused("this torch can't prefer one kernel without switching the others off")
    order = read()
    if order[0] == number and enabled:
        raise Refused(f"the job uses {wanted} already, where it takes the inputs")
    return switch(read, write, [number, *(each for each in order if each != number)])


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
    parts = [part for root in job.roots for part in root.modules()]  # type: ignore[attr-defined]
    held = [value for part in parts for name, value in vars(part).items() if "drop" in name]
    return any(value for value in held if isinstance(value, float)) or any(map(_may_drop, parts))


def _may_drop(module: object) -> bool:
    """Whether a module attends with a probability that can't be read as 0: a literal, or a config's."""
    children = module.children()  # type: ignore[attr-defined]
    rates = [each.p for each in children if "Dropout" in type(each).__name__]
    code = getattr(getattr(type(module), "forward", None), "__code__", None)
    if not _attends(module) or code is None or any(rates):
        return _attends(module) and any(rates)
    names = [name for each in code.co_consts if isinstance(each, tuple) for name in each]
    passes = any("drop" in name for name in names if isinstance(name, str))
    literal = any(isinstance(each, float) and 0 < each < 1 for each in code.co_consts)
    return literal or (passes and not rates and not any("drop" in name for name in vars(module)))
