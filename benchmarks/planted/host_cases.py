"""Planted cases whose step is spent on the host: dispatch, loading, the user's own code."""

from __future__ import annotations

from benchmarks.planted.case import Case

OVERHEAD: tuple[Case, ...] = (
    Case(
        name="tiny-recurrence",
        job="tiny_ops",
        truth="overhead",
        why="40 turns of three operators on 128 numbers each",
    ),
    Case(
        name="python-in-forward",
        job="tiny_ops",
        knobs={"turns": 20, "arithmetic": 600},
        truth="overhead",
        why="plain Python arithmetic inside the module's forward, with tiny operators between",
    ),
    Case(
        name="deep-tiny-mlp",
        job="mlp",
        knobs={"depth": 40, "width": 16, "batch": 4},
        truth="overhead",
        why="40 layers on 64 numbers each",
    ),
    Case(
        name="deep-tiny-mlp-2-threads",
        job="mlp",
        knobs={"depth": 40, "width": 16, "batch": 4},
        threads=2,
        truth="overhead",
        why="the same with two threads, which operators so small never use",
    ),
    Case(
        name="many-small-adamw",
        job="scales",
        knobs={"tensors": 100},
        truth="overhead",
        why="AdamW tensor by tensor over 100 parameters of 64 numbers",
    ),
    Case(
        name="many-small-rmsprop",
        job="scales",
        knobs={"tensors": 150, "size": 32, "optimizer": "rmsprop"},
        truth="overhead",
        why="RMSprop tensor by tensor over 150 parameters of 32 numbers",
    ),
    Case(
        name="many-small-foreach",
        job="scales",
        knobs={"tensors": 120, "size": 32, "optimizer": "momentum", "foreach": 1},
        truth="overhead",
        why="momentum over 120 tiny parameters; foreach spares the loop, not the forward and backward",
    ),
    Case(
        name="item-each-step-tiny",
        job="mlp",
        knobs={"depth": 30, "width": 16, "batch": 8, "item": 1},
        truth="overhead",
        why="a trap: reads the loss each step, which waits for nothing on a CPU",
    ),
    Case(
        name="tiny-gan",
        job="gan",
        knobs={"width": 16, "batch": 8},
        truth="overhead",
        why="two tiny networks, two optimizers",
    ),
    Case(
        name="tiny-transformer",
        job="transformer",
        knobs={"width": 16, "length": 8, "batch": 1, "layers": 3, "words": 32},
        truth="overhead",
        why="a language model of width 16 on one text of 8 tokens",
    ),
    Case(
        name="tiny-dlrm",
        job="dlrm",
        knobs={"rows": 100, "width": 8, "batch": 8},
        truth="overhead",
        why="six tiny tables, eight clicks at a time",
    ),
    Case(
        name="small-pointwise",
        job="pointwise",
        knobs={"kib": 4, "links": 16},
        truth="overhead",
        why="the pointwise chain on one row: dispatch is all of it",
    ),
    Case(
        name="tiny-with-evaluation",
        job="periodic",
        knobs={"evaluate_every": 20, "evaluations": 10},
        truth="overhead",
        why="a tiny net, evaluated (tiny operators again) after every 20 steps",
    ),
    Case(
        name="tiny-with-checkpoint",
        job="periodic",
        knobs={"save_every": 40},
        truth="overhead",
        why="a tiny net, saved after every 40 steps",
    ),
    Case(
        name="threads-oversubscribed",
        job="threads",
        knobs={"elements": 40_000, "links": 40},
        threads=8,
        alone={"threads": 1},
        truth="overhead",
        why="operators worth 10 us, split over eight threads that two cores do not have",
    ),
)

INPUT: tuple[Case, ...] = (
    Case(
        name="slow-items",
        job="loader",
        knobs={"asleep_us": 400.0},
        truth="input",
        why="each of 16 items waits 0.4 ms before it comes; the net is tiny",
    ),
    Case(
        name="slow-items-2-workers",
        job="loader",
        knobs={"asleep_us": 2000.0, "workers": 2},
        truth="input",
        why="two workers that sleep 32 ms for each batch, for steps of under a millisecond",
    ),
    Case(
        name="parsing-items",
        job="loader",
        knobs={"parse": 2000},
        truth="input",
        why="each item parses 2,000 numbers in Python",
    ),
    Case(
        name="parsing-items-1-worker",
        job="loader",
        knobs={"parse": 4000, "workers": 1},
        truth="input",
        why="one worker parses at its own core's full speed and is still too slow",
    ),
    Case(
        name="slow-collate",
        job="loader",
        knobs={"collate_us": 6000.0},
        truth="input",
        why="the collate function waits 6 ms",
    ),
    Case(
        name="heavy-augmentation",
        job="loader",
        knobs={"augment": 3, "batch": 8},
        truth="input",
        why="flips, rolls and normalises an image three times an item, with torch, in the loop's own process",
    ),
    Case(
        name="heavy-augmentation-1-worker",
        job="loader",
        knobs={"augment": 3, "batch": 8, "workers": 1},
        truth="input",
        why="the same in one worker: the loop waits for its queue",
    ),
)

HOST: tuple[Case, ...] = (
    Case(
        name="environment",
        job="host",
        knobs={"kind": "environment", "turns": 24_000},
        truth="host",
        why="physics in plain Python between the steps",
    ),
    Case(
        name="metrics",
        job="host",
        knobs={"kind": "metrics", "turns": 40_000},
        truth="host",
        why="counts of classes over dicts, each step",
    ),
    Case(
        name="garbage",
        job="host",
        knobs={"kind": "garbage", "turns": 5000},
        truth="host",
        why="5,000 pairs of cyclic objects a step, for the collector to find",
    ),
    Case(
        name="numpy-ranking",
        job="host",
        knobs={"kind": "numpy", "turns": 60_000},
        truth="host",
        why="sorts 60,000 scores with NumPy each step",
    ),
    Case(
        name="asleep-in-loop",
        job="host",
        knobs={"kind": "asleep", "turns": 8000},
        truth="host",
        why="sleeps 8 ms after each step",
    ),
    Case(
        name="json-log",
        job="host",
        knobs={"kind": "log", "turns": 1500},
        truth="host",
        why="writes 1,500 JSON lines a step",
    ),
    Case(
        name="checkpoint-each-step",
        job="periodic",
        knobs={"depth": 4, "save_every": 1, "saved_kib": 8192},
        truth="host",
        why="saves 8 MiB after each tiny step",
    ),
)
