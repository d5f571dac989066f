"""Operators by what they do: the class that a sentence names, and whether matrix products carry it."""

from __future__ import annotations

from autobrrr.diagnosis.models.traced_kernels import is_compute

MATMUL = "matmul"
MARKS = (
    (
        "embedding",
        ("embedding", "index_select", "gather", "scatter", "index_put", "index_add", "aten.index."),
    ),
    ("norm", ("_norm", ".norm.", "softmax")),
    ("copy", ("copy", "clone", "cat.", "stack", "contiguous", "fill", "zero", "ones", "pad", "roll")),
    ("reduction", ("sum", "mean", "max.", "min.", "amax", "amin", "argmax", "argmin", "var", "std", "pool")),
)


def op_class(op: str, phase: str = "") -> str:
    """matmul, optimizer, embedding, norm, copy, reduction or pointwise.

    Args:
        op: "aten.addmm.default".
        phase: Where it ran: all but matrix products inside the optimizer are its own class.
    """
    if is_compute(op):
        return MATMUL
    if phase == "optimizer":
        return "optimizer"
    name = op.replace("::", ".").removeprefix("aten.")
    return next(
        (kind for kind, marks in MARKS if any(mark in f"aten.{name}." for mark in marks)), "pointwise"
    )
