"""What is compared: steps, samples or tokens; and that nobody is faster for having drawn short samples."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from autobrrr.relaunch.search.search_space import Parameter, Space
from autobrrr.relaunch.study.work_per_step import (
    Counting,
    Yardstick,
    at_one_length,
    at_own_length,
    by_long_steps,
    by_steps,
)
from autobrrr.tuner.confidence_sequence import Interval, mean_interval
from autobrrr.tuner.token_adjustment import TokenBlock, at_length, mean_tokens

MS = 1_000_000
FIXED_NS, TOKEN_NS = 3 * MS, 4_000.0


def block(
    draw: np.random.Generator, steps: int = 12, speed: float = 1.0, batch: int = 8, length: float = 1.0
) -> TokenBlock:
    """Steps over samples of random length, of which every second shows its tokens."""
    tokens = length * batch * draw.integers(16, 256, steps).astype(np.float64)
    took = (FIXED_NS + TOKEN_NS * tokens) / speed * draw.normal(1, 0.01, steps)
    seen = slice(None, None, 2)
    return TokenBlock(steps=took, counted=took[seen], tokens=tokens[seen])


def compared(yardstick: Yardstick, seed: int, pairs: int = 20, **candidate: float) -> Interval:
    draw = np.random.default_rng(seed)
    met = [(block(draw), block(draw, **candidate)) for _ in range(pairs)]  # type: ignore[arg-type]
    found = mean_interval(yardstick(met), 0.05)
    assert found is not None
    return found


def test_random_lengths_alone_are_never_called_a_gain_and_cost_no_precision() -> None:
    found = [compared(at_one_length, seed) for seed in range(60)]
    assert sum(each.low > 0 for each in found) <= 4
    halves = [(each.high - each.low) / 2 for each in found]
    by_time = compared(by_steps, 1)
    assert max(halves) < 0.03
    assert (by_time.high - by_time.low) / 2 > 0.1


@pytest.mark.parametrize("seed", range(5))
def test_a_true_gain_over_random_lengths_is_in_its_interval(seed: int) -> None:
    found = compared(at_one_length, seed, speed=1.2)
    assert 0 < found.low < math.log(1.2) < found.high


def test_samples_of_twice_the_length_are_compared_by_the_token() -> None:
    middle = 8 * 135.5
    truth = math.log(2 * (FIXED_NS + TOKEN_NS * middle) / (FIXED_NS + 2 * TOKEN_NS * middle))

    def tokens(pairs: object) -> list[float]:
        return at_own_length(pairs, lambda ratio: ratio)  # type: ignore[arg-type]

    errors = [compared(tokens, seed, length=2.0).mean - truth for seed in range(20)]
    assert abs(np.mean(errors)) < 0.03


def test_a_block_of_short_samples_is_moved_to_the_length_of_all() -> None:
    blocks = [
        TokenBlock(steps=took, counted=took, tokens=tokens)
        for length in (200.0, 50.0, 100.0)
        for tokens in [length + np.arange(8.0)]
        for took in [FIXED_NS + TOKEN_NS * tokens]
    ]
    wanted = mean_tokens(blocks)
    assert at_length(blocks, wanted) == pytest.approx([FIXED_NS + TOKEN_NS * wanted] * 3)
    assert at_length([], 5.0) == []
    assert mean_tokens([]) == 0.0


def test_a_step_that_stood_still_does_not_decide() -> None:
    draw = np.random.default_rng(4)
    blocks = [block(draw, 20) for _ in range(6)]
    before = at_length(blocks, 1000)
    blocks[2].counted[3] += 10_000 * MS
    for calm, hit in zip(before, at_length(blocks, 1000), strict=True):
        assert calm is not None
        assert hit == pytest.approx(calm, rel=0.25)


@pytest.mark.parametrize("seen", [0, 1])
def test_a_block_with_fewer_than_two_steps_that_show_their_tokens_is_left_out(seen: int) -> None:
    some = TokenBlock(steps=np.full(9, 5.0), counted=np.full(seen, 5.0), tokens=np.full(seen, 3.0))
    assert at_one_length([(some, some)]) == []
    assert at_own_length([(some, some)], lambda ratio: ratio) == []
    full = block(np.random.default_rng(0))
    assert len(at_one_length([(full, full), (some, full), (full, full)])) == 2


def flag(name: str, *levels: int) -> Parameter:
    return Parameter(name=name, kind="flag", levels=levels, given=0, ordered=True, cls="changes-training")


BATCH, LENGTH, WORKERS = flag("--batch-size", 8, 32), flag("--seq-len", 64, 128), flag("--num-workers", 0, 1)


def trial(*, samples: int | None = 8, length: float | None = 64.0, varies: bool = False) -> SimpleNamespace:
    """As much of a running trial as is asked for what its steps hold."""
    tokens = None if length is None or samples is None else samples * length
    steps = SimpleNamespace(tokens=tokens, vary_in_length=varies)
    return SimpleNamespace(steps=steps, samples=samples, tokens=tokens)


def looked(space: Space, base: SimpleNamespace) -> Counting:
    counting = Counting(space)
    for _ in range(2):
        counting.look(base)  # type: ignore[arg-type]
    return counting


def held(space: Space, base: SimpleNamespace, candidate: SimpleNamespace, point: tuple[int, ...]) -> float:
    """What a step of the candidate is said to hold, against one of the command as given: all take 5 ns."""
    found = looked(space, base).yardstick(base, candidate, space.base, point)  # type: ignore[arg-type]
    blocks = [
        TokenBlock(steps=np.full(8, 5.0), counted=np.full(8, 5.0), tokens=np.full(8, float(each.tokens or 1)))
        for each in (base, candidate)
    ]
    (value,) = found([(blocks[0], blocks[1])])
    return math.exp(value)


def test_a_flag_that_accumulates_something_else_makes_a_smaller_batch_no_gain() -> None:
    space = Space(parameters=(flag("--batch-size", 32, 8),), accumulate="--accum-logs", samples_an_update=32)
    assert space.told_ratio((1,), space.base) == 1.0
    assert held(space, trial(samples=32, length=None), trial(samples=8, length=None), (1,)) == 0.25
    assert held(space, trial(samples=32, length=None), trial(samples=32, length=None), (1,)) == 1.0


@pytest.mark.parametrize(
    ("parameter", "base", "said"),
    [
        (LENGTH, trial(), "--seq-len may set the length of a sample: tokens are counted"),
        (WORKERS, trial(varies=True), "samples differ in length: tokens are counted"),
        (LENGTH, trial(length=None), None),
        (WORKERS, trial(), None),
    ],
)
def test_tokens_count_where_a_flag_may_set_the_length_or_lengths_vary(
    parameter: Parameter, base: SimpleNamespace, said: str | None
) -> None:
    counting = looked(Space(parameters=(parameter,)), base)
    assert counting.tokens is (said is not None)
    assert [note.partition(", ")[0] for note in counting.notes] == ([said] if said else [])


@pytest.mark.parametrize("varies", [False, True])
def test_tokens_of_a_step_are_those_of_its_flags(varies: bool) -> None:
    base, space = trial(varies=varies), Space(parameters=(LENGTH, BATCH))
    assert held(space, base, trial(length=128.0, varies=varies), (1, 0)) == pytest.approx(2.0)
    assert held(space, base, trial(samples=32, length=128.0, varies=varies), (1, 1)) == pytest.approx(8.0)
    assert held(space, base, trial(samples=32, varies=varies), (0, 1)) == pytest.approx(4.0)


def test_without_tokens_samples_are_counted_as_ever() -> None:
    space = Space(parameters=(BATCH,))
    assert held(space, trial(length=None), trial(samples=32, length=None), (1,)) == pytest.approx(4.0)
    assert held(space, trial(samples=None), trial(samples=None), (1,)) == pytest.approx(4.0)
    assert held(Space(parameters=(LENGTH,)), trial(), trial(length=None), (1,)) == pytest.approx(1.0)


def test_what_a_larger_batch_is_padded_with_does_not_count() -> None:
    space = Space(parameters=(BATCH, WORKERS))
    padded = trial(samples=32, length=80.0, varies=True)
    assert held(space, trial(varies=True), padded, (1, 0)) == pytest.approx(4.0)


def steady(step_ms: float, steps: int, long_ms: float = 0.0) -> TokenBlock:
    """Equal steps, the last of which takes longer where that is said."""
    took = np.full(steps, step_ms * MS)
    took[-1] += long_ms * MS
    return TokenBlock(steps=took, counted=np.empty(0), tokens=np.empty(0))


@pytest.mark.parametrize(("base_ms", "candidate_ms"), [(4, 16), (4, 24), (1, 16), (12, 2)])
def test_the_few_long_steps_of_the_slower_side_are_no_outliers(base_ms: int, candidate_ms: int) -> None:
    pairs = [(steady(base_ms, 120 // base_ms), steady(candidate_ms, max(4, 120 // candidate_ms)))] * 6
    assert by_steps(pairs) == pytest.approx([math.log(base_ms / candidate_ms)] * 6)
    assert by_long_steps(pairs) == pytest.approx(0.0)


def test_what_takes_long_now_and_then_is_no_part_of_a_typical_step_but_of_all_of_them() -> None:
    pairs = [(steady(8, 16), steady(6, 20, long_ms=100)), (steady(8, 16), steady(6, 20))]
    typical = by_steps(pairs)
    assert typical == pytest.approx([math.log(8 / 6)] * 2)
    over_all = math.log(8 / (6 + 100 / 40))
    assert typical[0] + by_long_steps(pairs) == pytest.approx(over_all)
    assert by_long_steps([]) == 0.0
