"""Planted cases whose step is spent in kernels: moving tensors, matrix products, too small ones."""

from benchmarks.planted.case import Case, planted

MEMORY: tuple[Case, ...] = (
    planted("memory", "pointwise-8-mib", "pointwise", kib=8192, links=4, why="a pointwise chain on 8 MiB"),
    planted("memory", "pointwise-16-mib-2-threads", "pointwise", kib=16384, links=3, threads=2,
        why="a pointwise chain on 16 MiB, on two threads"),
    planted("memory", "thousands-of-operators", "pointwise", kib=512, links=300,
        why="a chain of 300 links on half a MiB: some 4,000 operators, whose shapes take long to read"),
    planted("memory", "above-mmap-threshold", "pointwise", kib=34816, links=1,
        why="tensors of 34 MiB: malloc maps and unmaps each of them, page by page"),
    planted("memory", "layer-norms", "norms", kind="layer",
        why="layer norms and residual additions on 16 MiB"),
    planted("memory", "batch-norms", "norms", kind="batch", rows=4096,
        why="batch norms and residual additions on 8 MiB"),
    planted("memory", "few-huge-adamw", "scales", tensors=2, size=2_000_000,
        why="AdamW tensor by tensor over two parameters of two million: the same loop, all traffic"),
    planted("memory", "few-huge-momentum", "scales", tensors=2, size=4_000_000, optimizer="momentum",
        why="momentum over two parameters of four million"),
    planted("memory", "dense-embedding-sgd", "embedding",
        why="256 ids a step, but the gradient of all 200,000 rows is filled and applied"),
    planted("memory", "dense-embedding-adagrad", "embedding", optimizer="adagrad",
        why="the same under Adagrad"),
    planted("memory", "skinny-matmul", "mlp", depth=2, width=2048, batch=2,
        why="two rows through weights of 16 MiB: moves weights, hardly multiplies; not overhead"),
    planted("memory", "skinny-matmul-2-threads", "mlp", depth=2, width=2048, batch=2, threads=2,
        why="the same on two threads"),
    planted("memory", "optimizer-bound-mlp", "mlp", depth=2, width=1024, batch=8, optimizer="adamw",
        why="eight rows through weights of 4 MiB that AdamW then sweeps twenty times"),
)  # fmt: skip

COMPUTE: tuple[Case, ...] = (
    planted("compute", "wide-mlp", "mlp", depth=3, width=512, batch=512,
        why="512 rows through 512 x 512 weights"),
    planted("compute", "wide-mlp-2-threads", "mlp", depth=4, width=768, batch=512, threads=2,
        why="512 rows through 768 x 768 weights, on two threads"),
    planted("compute", "item-each-step-wide", "mlp", depth=3, width=512, batch=512, item=1,
        why="a trap: the wide net again, its loss read each step"),
    planted("compute", "convolutions", "conv", channels=64, layers=3, batch=8, side=24,
        why="3 x 3 convolutions over 64 channels"),
    planted("compute", "wide-transformer", "transformer", width=384, length=64, batch=4, layers=2,
        why="a language model of width 384 on 256 tokens"),
    planted("compute", "long-steps-transformer", "transformer", width=384, length=64, batch=16, layers=2,
        why="a language model of width 384 on 1,024 tokens: a step of a third of a second"),
    planted("compute", "quick-loader-wide-mlp", "loader", width=512, depth=3, batch=512, workers=1,
        why="the wide net behind a loader whose worker is always ahead"),
)  # fmt: skip

UNDERFILLED: tuple[Case, ...] = (
    planted("underfilled", "tiny-batched-matmuls", "small_matmuls",
        why="2,048 products of 6 x 6 matrices in one operator"),
    planted("underfilled", "smaller-batched-matmuls", "small_matmuls", batch=8192, side=3, layers=3,
        why="8,192 products of 3 x 3 matrices in one operator"),
    planted("underfilled", "small-lstm", "recurrent", width=16, length=384, batch=2,
        why="one operator runs 384 small matmuls one after another"),
)  # fmt: skip
