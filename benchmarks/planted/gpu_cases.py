"""The planted cases of a CUDA machine: the same scripts on `--device cuda`, with data for a GPU.

Small kernels leave the device idle for the host's sake (overhead); tensors of half a gigabyte fill its
bandwidth.
"""

from __future__ import annotations

from benchmarks.planted.case import Case, Knob, Truth


def gpu(name: str, job: str, truth: Truth, why: str, **knobs: Knob) -> Case:
    return Case(name=name, job=job, truth=truth, why=why, knobs=knobs, device="cuda")


def waiting(kind: str, why: str, **knobs: Knob) -> Case:
    """The host waits for the device; the same job without it shows how much that is."""
    return Case(
        name=f"sync-{kind.replace('_', '-')}",
        job="sync",
        truth="sync",
        why=why,
        knobs={"kind": kind, **knobs},
        device="cuda",
        alone={"kind": "nothing"},
    )


HALF_GIB_KIB = 512 * 1024

GPU_CASES: tuple[Case, ...] = (
    gpu("tiny-recurrence", "tiny_ops", "overhead", "40 turns of three launches on 128 numbers each"),
    gpu(
        "deep-tiny-mlp",
        "mlp",
        "overhead",
        "40 layers on 64 numbers each: launches only",
        depth=40,
        width=16,
        batch=4,
    ),
    gpu(
        "many-small-adamw",
        "scales",
        "overhead",
        "AdamW tensor by tensor over 200 tiny parameters",
        tensors=200,
    ),
    gpu("tiny-gan", "gan", "overhead", "two tiny networks, two optimizers", width=16, batch=8),
    gpu("tiny-dlrm", "dlrm", "overhead", "six tiny tables, eight clicks", rows=100, width=8, batch=8),
    gpu(
        "tiny-transformer",
        "transformer",
        "overhead",
        "a language model of width 16 on 8 tokens",
        width=16,
        length=8,
        batch=1,
        layers=3,
        words=32,
    ),
    gpu("slow-items", "loader", "input", "16 items of 0.6 ms a step of a tiny net", asleep_us=600.0),
    gpu(
        "slow-items-2-workers",
        "loader",
        "input",
        "two workers asleep for 48 ms a batch",
        asleep_us=3000.0,
        workers=2,
    ),
    gpu("parsing-items", "loader", "input", "each of 16 items parses 2,000 numbers in Python", parse=2000),
    gpu("slow-collate", "loader", "input", "the collate function waits 10 ms", collate_us=10_000.0),
    waiting("item", "reads a number of every layer's result back", depth=60, width=1024, batch=1024),
    waiting("print", "prints a number of every layer's result", depth=40, width=256, batch=256),
    waiting("empty_cache", "gives the cache back after every layer", depth=8, width=4096, batch=2048),
    gpu(
        "pointwise-half-gib",
        "pointwise",
        "memory",
        "a pointwise chain on half a GiB",
        kib=HALF_GIB_KIB,
        links=3,
    ),
    gpu(
        "layer-norms",
        "norms",
        "memory",
        "layer norms on half a GiB",
        kind="layer",
        rows=131_072,
        width=1024,
    ),
    gpu(
        "few-huge-adamw",
        "scales",
        "memory",
        "AdamW tensor by tensor over two parameters of 64 M",
        tensors=2,
        size=64_000_000,
    ),
    gpu(
        "dense-embedding",
        "embedding",
        "memory",
        "the dense gradient of a table of half a GiB, filled and applied",
        rows=2_000_000,
        width=64,
    ),
    gpu(
        "wide-mlp",
        "mlp",
        "compute",
        "4,096 rows through 4,096 x 4,096 weights",
        depth=6,
        width=4096,
        batch=4096,
    ),
    gpu(
        "item-each-step-wide",
        "mlp",
        "compute",
        "a trap: the wide net, whose loss is read once a step; the device is busy throughout",
        depth=6,
        width=4096,
        batch=4096,
        item=1,
    ),
    gpu(
        "wide-transformer",
        "transformer",
        "compute",
        "a language model of width 2,048 on 8,192 tokens",
        width=2048,
        length=512,
        batch=16,
        layers=4,
        words=8192,
    ),
)
