"""The planted cases of a CUDA machine: the same scripts on `--device cuda`, with data for a GPU.

Small kernels leave the device idle for the host's sake (overhead); tensors of half a gigabyte fill its
bandwidth.
"""

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
    gpu("tiny-recurrence", "tiny_ops", "overhead", why="40 turns of three launches on 128 numbers each"),
    gpu("deep-tiny-mlp", "mlp", "overhead", depth=40, width=16, batch=4,
        why="40 layers on 64 numbers each: launches only"),
    gpu("many-small-adamw", "scales", "overhead", tensors=200,
        why="AdamW tensor by tensor over 200 tiny parameters"),
    gpu("tiny-gan", "gan", "overhead", width=16, batch=8, why="two tiny networks, two optimizers"),
    gpu("tiny-dlrm", "dlrm", "overhead", rows=100, width=8, batch=8, why="six tiny tables, eight clicks"),
    gpu("tiny-transformer", "transformer", "overhead", width=16, length=8, batch=1, layers=3, words=32,
        why="a language model of width 16 on 8 tokens"),
    gpu("slow-items", "loader", "input", asleep_us=600.0, why="16 items of 0.6 ms a step of a tiny net"),
    gpu("slow-items-2-workers", "loader", "input", asleep_us=3000.0, workers=2,
        why="two workers asleep for 48 ms a batch"),
    gpu("parsing-items", "loader", "input", parse=2000,
        why="each of 16 items parses 2,000 numbers in Python"),
    gpu("slow-collate", "loader", "input", collate_us=10_000.0, why="the collate function waits 10 ms"),
    waiting("item", depth=60, width=1024, batch=1024, why="reads a number of every layer's result back"),
    waiting("print", depth=40, width=256, batch=256, why="prints a number of every layer's result"),
    waiting("empty_cache", depth=8, width=4096, batch=2048, why="gives the cache back after every layer"),
    gpu("pointwise-half-gib", "pointwise", "memory", kib=HALF_GIB_KIB, links=3,
        why="a pointwise chain on half a GiB"),
    gpu("layer-norms", "norms", "memory", kind="layer", rows=131_072, width=1024,
        why="layer norms on half a GiB"),
    gpu("few-huge-adamw", "scales", "memory", tensors=2, size=64_000_000,
        why="AdamW tensor by tensor over two parameters of 64 M"),
    gpu("dense-embedding", "embedding", "memory", rows=2_000_000, width=64,
        why="the dense gradient of a table of half a GiB, filled and applied"),
    gpu("wide-mlp", "mlp", "compute", depth=6, width=4096, batch=4096,
        why="4,096 rows through 4,096 x 4,096 weights"),
    gpu("item-each-step-wide", "mlp", "compute", depth=6, width=4096, batch=4096, item=1,
        why="a trap: the wide net, whose loss is read once a step; the device is busy throughout"),
    gpu("wide-transformer", "transformer", "compute", width=2048, length=512, batch=16, layers=4, words=8192,
        why="a language model of width 2,048 on 8,192 tokens"),
)  # fmt: skip
