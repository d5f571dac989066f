"""Planted cases whose step is spent in kernels: moving tensors, matrix products, too small ones."""

from __future__ import annotations

from benchmarks.planted.case import Case

MEMORY: tuple[Case, ...] = (
    Case(
        name="pointwise-8-mib",
        job="pointwise",
        knobs={"kib": 8192, "links": 4},
        truth="memory",
        why="a pointwise chain on 8 MiB",
    ),
    Case(
        name="pointwise-16-mib-2-threads",
        job="pointwise",
        knobs={"kib": 16384, "links": 3},
        threads=2,
        truth="memory",
        why="a pointwise chain on 16 MiB, on two threads",
    ),
    Case(
        name="thousands-of-operators",
        job="pointwise",
        knobs={"kib": 512, "links": 300},
        truth="memory",
        why="a chain of 300 links on half a MiB: some 4,000 operators, whose shapes take long to read",
    ),
    Case(
        name="above-mmap-threshold",
        job="pointwise",
        knobs={"kib": 34816, "links": 1},
        truth="memory",
        why="tensors of 34 MiB: malloc maps and unmaps each of them, page by page",
    ),
    Case(
        name="layer-norms",
        job="norms",
        knobs={"kind": "layer"},
        truth="memory",
        why="layer norms and residual additions on 16 MiB",
    ),
    Case(
        name="batch-norms",
        job="norms",
        knobs={"kind": "batch", "rows": 4096},
        truth="memory",
        why="batch norms and residual additions on 8 MiB",
    ),
    Case(
        name="few-huge-adamw",
        job="scales",
        knobs={"tensors": 2, "size": 2_000_000},
        truth="memory",
        why="AdamW tensor by tensor over two parameters of two million: the same loop, all traffic",
    ),
    Case(
        name="few-huge-momentum",
        job="scales",
        knobs={"tensors": 2, "size": 4_000_000, "optimizer": "momentum"},
        truth="memory",
        why="momentum over two parameters of four million",
    ),
    Case(
        name="dense-embedding-sgd",
        job="embedding",
        truth="memory",
        why="256 ids a step, but the gradient of all 200,000 rows is filled and applied",
    ),
    Case(
        name="dense-embedding-adagrad",
        job="embedding",
        knobs={"optimizer": "adagrad"},
        truth="memory",
        why="the same under Adagrad",
    ),
    Case(
        name="skinny-matmul",
        job="mlp",
        knobs={"depth": 2, "width": 2048, "batch": 2},
        truth="memory",
        why="two rows through weights of 16 MiB: moves weights, hardly multiplies; not overhead",
    ),
    Case(
        name="skinny-matmul-2-threads",
        job="mlp",
        knobs={"depth": 2, "width": 2048, "batch": 2},
        threads=2,
        truth="memory",
        why="the same on two threads",
    ),
    Case(
        name="optimizer-bound-mlp",
        job="mlp",
        knobs={"depth": 2, "width": 1024, "batch": 8, "optimizer": "adamw"},
        truth="memory",
        why="eight rows through weights of 4 MiB that AdamW then sweeps twenty times",
    ),
)

COMPUTE: tuple[Case, ...] = (
    Case(
        name="wide-mlp",
        job="mlp",
        knobs={"depth": 3, "width": 512, "batch": 512},
        truth="compute",
        why="512 rows through 512 x 512 weights",
    ),
    Case(
        name="wide-mlp-2-threads",
        job="mlp",
        knobs={"depth": 4, "width": 768, "batch": 512},
        threads=2,
        truth="compute",
        why="512 rows through 768 x 768 weights, on two threads",
    ),
    Case(
        name="item-each-step-wide",
        job="mlp",
        knobs={"depth": 3, "width": 512, "batch": 512, "item": 1},
        truth="compute",
        why="a trap: the wide net again, its loss read each step",
    ),
    Case(
        name="convolutions",
        job="conv",
        knobs={"channels": 64, "layers": 3, "batch": 8, "side": 24},
        truth="compute",
        why="3 x 3 convolutions over 64 channels",
    ),
    Case(
        name="wide-transformer",
        job="transformer",
        knobs={"width": 384, "length": 64, "batch": 4, "layers": 2},
        truth="compute",
        why="a language model of width 384 on 256 tokens",
    ),
    Case(
        name="long-steps-transformer",
        job="transformer",
        knobs={"width": 384, "length": 64, "batch": 16, "layers": 2},
        truth="compute",
        why="a language model of width 384 on 1,024 tokens: a step of a third of a second",
    ),
    Case(
        name="quick-loader-wide-mlp",
        job="loader",
        knobs={"width": 512, "depth": 3, "batch": 512, "workers": 1},
        truth="compute",
        why="the wide net behind a loader whose worker is always ahead",
    ),
)

UNDERFILLED: tuple[Case, ...] = (
    Case(
        name="tiny-batched-matmuls",
        job="small_matmuls",
        truth="underfilled",
        why="2,048 products of 6 x 6 matrices in one operator",
    ),
    Case(
        name="smaller-batched-matmuls",
        job="small_matmuls",
        knobs={"batch": 8192, "side": 3, "layers": 3},
        truth="underfilled",
        why="8,192 products of 3 x 3 matrices in one operator",
    ),
    Case(
        name="small-lstm",
        job="recurrent",
        knobs={"width": 16, "length": 384, "batch": 2},
        truth="underfilled",
        why="one operator runs 384 small matmuls one after another",
    ),
)
