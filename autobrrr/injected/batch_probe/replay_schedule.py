"""When to replay which batch size, and what a pause may cost. Pure arithmetic.

Sizes are interleaved so that drift of the machine meets all of them alike; the first two replays
of each size are dropped. Where a step is long, B and 2B come first, since they decide, and no replay
is made only to be dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log

SHARE = 0.2  # of training time that replays may add
FLOOR_NS = 30_000_000
_STEPS_PER_PAUSE = 3
_STEEPER = 0.5  # by which the power of a size may grow with it
LONG_STEP_NS = 100_000_000  # a replay takes so long that what comes first matters
DECIDES = 2  # timed replays of B and of 2B
_BUDGET_NS = 2_000_000_000
_BUDGET_STEPS = 14  # planned for
_LONG_BUDGET_STEPS = 20  # given up at


def pause_limit_ns(step_ns: int, wanted_ns: int | None) -> int:
    """Longest pause: 30 ms or three steps, whichever is more; less if less is wanted."""
    limit = max(FLOOR_NS, _STEPS_PER_PAUSE * step_ns)
    return limit if wanted_ns is None else min(limit, wanted_ns)


def budget_ns(step_ns: int) -> int:
    """What a probe may take of training in all: 2 s, or 20 steps where they are long."""
    return max(_BUDGET_NS, _LONG_BUDGET_STEPS * step_ns)


def batches(batch: int, factors: Sequence[float]) -> list[int]:
    """Batch sizes to replay, ascending, each once; none below one sample."""
    return sorted({max(1, int(batch * factor)) for factor in factors})


def steps_until_next(spent_ns: int, step_ns: int) -> int:
    """After how many steps to come again so that replays stay a fifth of training time."""
    return max(1, -int(-spent_ns // max(1, int(SHARE * step_ns))))


def warm_ups(step_ns: int) -> int:
    """Replays of each size that are dropped: none where each takes long."""
    return 2 if step_ns < LONG_STEP_NS else 0


def decisive(batch: int, sizes: Sequence[int]) -> list[int]:
    """The two sizes that decide: B and 2B, or what comes next below B where 2B is left out."""
    below = [size for size in sizes if size < batch]
    return [batch, 2 * batch] if 2 * batch in sizes else [batch, *below[-1:]]


def by_decision(batch: int, sizes: Sequence[int]) -> list[int]:
    """All replays of a probe whose step is long: what decides first, and what checks it later."""
    first = decisive(batch, sizes)
    others = sorted((size for size in sizes if size not in first), reverse=True)
    return [*(DECIDES * first), *(2 * others[:1]), *first, *(size for size in others[1:] for _ in range(2))]


def rounds(wanted: int, step_ns: int, replay_ns: int, batch: int, sizes: Sequence[int]) -> int:
    """Timed replays of each size that the budget allows; at least two.

    Args:
        wanted: As commanded.
        step_ns: Of a real step.
        replay_ns: A replay at B as far as it is known, guard and copies included.
    """
    budget = allowance_ns(step_ns)
    cycle = max(1, int(replay_ns * sum(sizes) / batch))
    return max(2, min(wanted, budget // cycle - warm_ups(step_ns) - 1))


def allowance_ns(step_ns: int) -> int:
    """What is planned for, out of the budget."""
    return max(_BUDGET_NS, _BUDGET_STEPS * step_ns)


def cycle(sizes: Sequence[int], batch: int, number: int) -> list[int]:
    """The sizes in the order of one round: B, B/2, 2B, B/4; every other round reversed."""
    below = [size for size in sizes if size < batch]
    above = [size for size in sizes if size > batch]
    order = [size for size in sizes if size == batch]
    while below or above:
        if below:
            order.append(below.pop())
        if above:
            order.append(above.pop(0))
    return order if number % 2 == 0 else order[::-1]


def predicted_pause_ns(
    size: int, pauses: Mapping[int, Sequence[int]], step_ns: int, batch: int, power: int = 1
) -> int:
    """What a replay takes of training with all that is around it, before it runs.

    The first replay of a size is the dearest: its memory is new. So a size that has not run is told from
    the first replay of the next smaller one, and grows as first replays have grown so far, at least with
    the size itself.

    Args:
        pauses: What replays took of training, by size, in order.
        step_ns: A real step, where nothing has been measured.
        power: Of the size, by which larger ones may grow, where that has not been seen.
    """
    known = {at: times for at, times in pauses.items() if times}
    if size in known:
        return min(known[size])
    smaller = sorted(at for at in known if at < size)
    if not smaller:
        return int(max(min(map(min, known.values()), default=0), step_ns * max(1.0, size / batch) ** power))
    nearest = smaller[-1]
    growth = float(power)
    if len(smaller) > 1 and power > 1:
        before = smaller[-2]
        seen = log(known[nearest][0] / known[before][0]) / log(nearest / before)
        growth = min(growth, max(1.0, seen + _STEEPER))
    return int(known[nearest][0] * (size / nearest) ** growth)


def predicted_ns(
    size: int, measured: Mapping[int, Sequence[int]], step_ns: int, batch: int, power: int = 1
) -> int:
    """What a replay takes when nobody interrupts it; larger batches through the origin.

    Args:
        measured: Durations by batch size, so far.
        step_ns: A real step, where nothing has been measured.
        power: Of the size, by which larger ones grow at most.
    """
    known = {at: min(times) for at, times in measured.items() if times}
    if size in known:
        return known[size]
    if not known:
        return int(step_ns * max(1.0, size / batch) ** power)
    nearest = max((at for at in known if at < size), default=min(known))
    return int(known[nearest] * max(1.0, size / nearest) ** power)
