"""Timed steps of made-up ranks that wait for each other in every step, as gloo ranks do."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from autobrrr.records import CollectiveWaits, HostSample

MS = 1_000_000
USUAL_MS = {"other": 1.0, "data_wait": 1.0, "forward": 5.0, "backward": 10.0, "optimizer": 2.0}
NOISE = 0.02  # of each phase, standard deviation
NOTHING: Mapping[str, float] = {}


class RankModel(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank does in a step, beyond what all do."""

    more_ms: Mapping[str, float] = NOTHING
    every: int = 1  # steps between two of those in which it does
    offset: int = 0
    until: int = 1 << 30
    garbage_ms: float = 0.0  # in the same steps
    delay_ms: float = 0.0
    collectives_ms: float = 0.5  # when all are there
    tokens: int = -1
    tokens_vary: bool = False  # from step to step, and forward and backward with them
    own_varies: bool = False  # they alone
    factors: tuple[float, ...] = ()  # by one of these; empty: by anything between
    reduced: int = 1  # times that gradients are exchanged in a step
    host: HostSample | None = None


def job(models: Sequence[RankModel], steps: int, seed: int = 0) -> list[CollectiveWaits]:
    """Each rank's steps: everybody leaves a step's collectives when the last one has come."""
    draw = np.random.default_rng(seed)
    rows: list[list[dict[str, float]]] = [[] for _ in models]
    tokens: list[list[int]] = [[] for _ in models]
    for number in range(steps):
        for model, own, sizes in zip(models, rows, tokens, strict=True):
            phases = {name: ms * (1 + NOISE * draw.standard_normal()) for name, ms in USUAL_MS.items()}
            if number % model.every == model.offset and number < model.until:
                phases = {name: ms + model.more_ms.get(name, 0.0) for name, ms in phases.items()}
            size = model.tokens
            if model.tokens_vary or model.own_varies:
                factor = draw.choice(model.factors) if model.factors else draw.uniform(0.3, 2.0)
                phases = {**phases, **{name: factor * phases[name] for name in ("forward", "backward")}}
                size = int(size * factor) if model.tokens_vary else size
            own.append(phases)
            sizes.append(size)
    left_ms = _left(rows, max(model.collectives_ms for model in models))
    return [
        _timed(model, own, left_ms, sizes) for model, own, sizes in zip(models, rows, tokens, strict=True)
    ]


def _left(rows: Sequence[Sequence[Mapping[str, float]]], collectives_ms: float) -> list[float]:
    """When each step's collectives are left."""
    left: list[float] = []
    for number in range(len(rows[0])):
        came = [(left[-1] + own[number - 1]["optimizer"] if left else 1000.0) for own in rows]
        came = [
            at + sum(ms for name, ms in own[number].items() if name != "optimizer")
            for at, own in zip(came, rows, strict=True)
        ]
        left.append(max(came) + collectives_ms)
    return left


def _timed(
    model: RankModel, own: Sequence[Mapping[str, float]], left_ms: Sequence[float], tokens: list[int]
) -> CollectiveWaits:
    ends = [left + each["optimizer"] for left, each in zip(left_ms, own, strict=True)]
    begins = [1000.0, *ends[:-1]]
    step_ns = [int((end - begin) * MS) for begin, end in zip(begins, ends, strict=True)]
    own_ns = [int(sum(each.values()) * MS) for each in own]
    there = [number % model.every == model.offset for number in range(len(own))]
    return CollectiveWaits(
        status="ok",
        step_ns=step_ns,
        exposed_ns=[max(0, step - works) for step, works in zip(step_ns, own_ns, strict=True)],
        blocked_ns=[0] * len(own),
        end_ns=[int(end * MS) for end in ends],
        own_by_phase_ns={name: [int(each[name] * MS) for each in own] for name in USUAL_MS},
        delay_ns=[int(model.delay_ms * MS * now) for now in there],
        garbage_ns=[int(model.garbage_ms * MS * now) for now in there],
        samples=[16] * len(own),
        tokens=tokens,
        reduced=[model.reduced] * len(own),
    )
