"""Planted cases whose step is spent on the host: dispatch, loading, the user's own code."""

from __future__ import annotations

from benchmarks.planted.case import Case, planted

OVERHEAD: tuple[Case, ...] = (
    planted("overhead", "tiny-recurrence", "tiny_ops", why="40 turns of three operators on 128 numbers each"),
    planted("overhead", "python-in-forward", "tiny_ops", turns=20, arithmetic=600,
        why="plain Python arithmetic inside the module's forward, with tiny operators between"),
    planted("overhead", "asleep-in-backward", "held_backward", asleep_ms=50.0,
        why="a custom backward sleeps 50 ms; a dozen tiny operators beside it"),
    planted("overhead", "python-in-backward", "held_backward", turns=100_000,
        why="a custom backward counts in plain Python; a dozen tiny operators beside it"),
    planted("overhead", "deep-tiny-mlp", "mlp", depth=40, width=16, batch=4,
        why="40 layers on 64 numbers each"),
    planted("overhead", "deep-tiny-mlp-2-threads", "mlp", depth=40, width=16, batch=4, threads=2,
        why="the same with two threads, which operators so small never use"),
    planted("overhead", "many-small-adamw", "scales", tensors=100,
        why="AdamW tensor by tensor over 100 parameters of 64 numbers"),
    planted("overhead", "many-small-rmsprop", "scales", tensors=150, size=32, optimizer="rmsprop",
        why="RMSprop tensor by tensor over 150 parameters of 32 numbers"),
    planted("overhead", "many-small-foreach", "scales", tensors=120, size=32, optimizer="momentum", foreach=1,
        why="momentum over 120 tiny parameters; foreach spares the loop, not the forward and backward"),
    planted("overhead", "item-each-step-tiny", "mlp", depth=30, width=16, batch=8, item=1,
        why="a trap: reads the loss each step, which waits for nothing on a CPU"),
    planted("overhead", "tiny-gan", "gan", width=16, batch=8, why="two tiny networks, two optimizers"),
    planted("overhead", "tiny-transformer", "transformer", width=16, length=8, batch=1, layers=3, words=32,
        why="a language model of width 16 on one text of 8 tokens"),
    planted("overhead", "ode-wrapper", "ode",
        why="a field of two layers, called 32 times by a solver through a module that each step makes anew"),
    planted("overhead", "tiny-dlrm", "dlrm", rows=100, width=8, batch=8,
        why="six tiny tables, eight clicks at a time"),
    planted("overhead", "small-pointwise", "pointwise", kib=4, links=16,
        why="the pointwise chain on one row: dispatch is all of it"),
    planted("overhead", "tiny-with-evaluation", "periodic", evaluate_every=20, evaluations=10,
        why="a tiny net, evaluated (tiny operators again) after every 20 steps"),
    planted("overhead", "tiny-with-checkpoint", "periodic", save_every=40,
        why="a tiny net, saved after every 40 steps"),
    planted("overhead", "threads-oversubscribed", "threads", elements=40_000, links=40,
        threads=8, alone={"threads": 1},
        why="operators worth 10 us, split over eight threads that two cores do not have"),
)  # fmt: skip

INPUT: tuple[Case, ...] = (
    planted("input", "slow-items", "loader", asleep_us=400.0,
        why="each of 16 items waits 0.4 ms before it comes; the net is tiny"),
    planted("input", "slow-items-2-workers", "loader", asleep_us=2000.0, workers=2,
        why="two workers that sleep 32 ms for each batch, for steps of under a millisecond"),
    planted("input", "parsing-items", "loader", parse=2000, why="each item parses 2,000 numbers in Python"),
    planted("input", "parsing-items-1-worker", "loader", parse=4000, workers=1,
        why="one worker parses at its own core's full speed and is still too slow"),
    planted("input", "slow-collate", "loader", collate_us=6000.0, why="the collate function waits 6 ms"),
    planted("input", "heavy-augmentation", "loader", augment=3, batch=8,
        why="flips, rolls and normalises an image three times an item, with torch, in the loop's own "
            "process"),
    planted("input", "module-transforms", "loader", modules=3, batch=8,
        why="the same by three transforms that are modules, which look like a model's forward"),
    planted("input", "heavy-augmentation-1-worker", "loader", augment=3, batch=8, workers=1,
        why="the same in one worker: the loop waits for its queue"),
)  # fmt: skip

HOST: tuple[Case, ...] = (
    planted("host", "environment", "host", kind="environment", turns=24_000,
        why="physics in plain Python between the steps"),
    planted("host", "environment-between-networks", "between_roots",
        why="an actor is called, an environment steps in plain Python, then a critic is called"),
    planted("host", "metrics", "host", kind="metrics", turns=40_000,
        why="counts of classes over dicts, each step"),
    planted("host", "garbage", "host", kind="garbage", turns=5000,
        why="5,000 pairs of cyclic objects a step, for the collector to find"),
    planted("host", "numpy-ranking", "host", kind="numpy", turns=60_000,
        why="sorts 60,000 scores with NumPy each step"),
    planted("host", "asleep-in-loop", "host", kind="asleep", turns=8000, why="sleeps 8 ms after each step"),
    planted("host", "json-log", "host", kind="log", turns=1500, why="writes 1,500 JSON lines a step"),
    planted("host", "checkpoint-each-step", "periodic", depth=4, save_every=1, saved_kib=8192,
        why="saves 8 MiB after each tiny step"),
)  # fmt: skip
