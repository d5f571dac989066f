"""Calls timed on copies: what is surely slower stays as it was, what may not be is left to the live trial."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from autobrrr.injected.remedies.model_calls import rehearsal
from autobrrr.injected.remedies.model_calls.compiled_call import MOST_MET, CallsWatch, CompiledCall
from autobrrr.injected.remedies.model_calls.rehearsal import Rehearsal
from autobrrr.injected.remedies.model_calls.timed_calls import (
    FEWEST_PAIRS,
    MOST_PAIRS,
    CallTimes,
    call_times,
    enough,
)

MS = 1_000_000.0
PAIRS = [(10 * MS, 14 * MS), (11 * MS, 15 * MS), (10 * MS, 14.4 * MS), (10 * MS, 13.8 * MS)]


def times(plain: float, other: float, off: float = 0.02) -> CallTimes:
    return CallTimes(plain, other, other * (1 - off), other * (1 + off), 8)


def test_a_call_that_is_surely_slower_is_told_with_its_figures() -> None:
    found = call_times(PAIRS)
    assert found.plain_ns == 10 * MS
    assert 1.2 < found.least_ns / found.plain_ns < found.other_ns / found.plain_ns < 1.5
    assert found.why_slower is not None
    assert "slower: forward and backward take 14 ms on copies, 10 ms as they are (4 pairs" in found.why_slower


@pytest.mark.parametrize(
    "pairs",
    [
        [(10 * MS, 8 * MS)] * 6,
        [(10 * MS, 10.3 * MS)] * 6,  # less than copies differ from the loop by
        [(10 * MS, 15 * MS), (15 * MS, 10 * MS), (10 * MS, 14 * MS), (14 * MS, 10 * MS)],
    ],
    ids=["faster", "alike", "disturbed"],
)
def test_a_call_that_may_be_no_slower_is_left_to_the_live_trial(pairs: list[tuple[float, float]]) -> None:
    assert call_times(pairs).why_slower is None


def test_one_disturbed_pair_of_many_changes_little() -> None:
    calm = [(10 * MS, 9 * MS), (10 * MS, 9.1 * MS)] * 6
    disturbed = [*calm[:-1], (10 * MS, 90 * MS)]
    assert call_times(disturbed).other_ns == pytest.approx(call_times(calm).other_ns, rel=0.02)


def test_long_calls_are_timed_a_few_times_and_short_ones_more_often() -> None:
    assert not enough([(900 * MS, 900 * MS)] * (FEWEST_PAIRS - 1))
    assert enough([(900 * MS, 900 * MS)] * FEWEST_PAIRS)
    assert not enough([(MS, MS)] * (MOST_PAIRS - 1))
    assert enough([(MS, MS)] * MOST_PAIRS)


class Clock:
    """Time that passes by what is called."""

    def __init__(self) -> None:
        self.now_ns = 0

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def takes(self, module: nn.Module, ns: float) -> Callable[..., object]:
        def call(*args: object) -> object:
            self.now_ns += int(ns)
            return module._call_impl(*args)

        return call


def test_a_rehearsal_times_both_ways_in_turn_and_leaves_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, module = Clock(), nn.Linear(8, 2)
    monkeypatch.setattr(rehearsal, "time", clock)
    tried = Rehearsal(torch, module, own_stream=False)
    given = [torch.randn(4, 8)]
    found = tried.times(clock.takes(module, 2 * MS), clock.takes(module, 5 * MS), given, {})
    assert found is not None
    assert (found.plain_ns, round(found.other_ns)) == (2 * MS, 5 * MS)
    assert found.pairs == MOST_PAIRS
    assert module.weight.grad is None

    def fails(*args: object) -> object:
        raise RuntimeError("now it does")

    assert tried.times(fails, fails, given, {}) is None


class Rehearsed:
    """Gives these times, one kind after the other; nothing is ever wrong."""

    def __init__(self, module: nn.Module, *found: CallTimes | None) -> None:
        self.torch, self.module, self._found = torch, module, list(found)

    def obstacle(self) -> str | None:
        return None

    def why_not(self, *args: object) -> str | None:
        return None

    def times(self, *args: object) -> CallTimes | None:
        return self._found.pop(0)


def led(*found: CallTimes | None) -> tuple[CompiledCall, Callable[[int], object], list[str]]:
    module, how = nn.Linear(8, 2), []

    def way(name: str) -> Callable[..., object]:
        return lambda *args: (how.append(name), module(*args))[1]

    call = CompiledCall(Rehearsed(module, *found), way("compiled"), dynamic=False)  # type: ignore[arg-type]
    layer = call.layer(way("eager"))
    return call, lambda rows: layer(torch.randn(rows, 8)), how


def fails_with(compiled: Exception, eager: Exception | None) -> tuple[CompiledCall, Callable[[], object]]:
    module = nn.Linear(8, 2)

    def way(error: Exception | None) -> Callable[..., object]:
        def call(*args: torch.Tensor) -> object:
            nn.functional.dropout(args[0])
            if error is not None:
                raise error
            return "eager"

        return call

    call = CompiledCall(Rehearsed(module, None), way(compiled), dynamic=False)  # type: ignore[arg-type]
    layer = call.layer(way(eager))
    return call, lambda: layer(torch.randn(4, 8))


def test_a_compiled_call_that_raises_is_answered_by_the_eager_one_and_ends_the_remedy() -> None:
    call, step = fails_with(RuntimeError("no such kernel"), None)
    assert step() == "eager"
    assert "RuntimeError: no such kernel" in str(CallsWatch([call]).trouble())
    assert step() == "eager"


def test_an_error_that_the_eager_call_raises_too_ends_nothing() -> None:
    call, step = fails_with(RuntimeError("no such kernel"), ValueError("the job's own"))
    for _ in range(2):
        torch.manual_seed(5)
        with pytest.raises(ValueError, match="the job's own") as raised:
            step()
        assert raised.value.__context__ is None
        assert CallsWatch([call]).trouble() is None
        drawn = torch.get_rng_state()
    torch.manual_seed(5)
    nn.functional.dropout(torch.randn(4, 8))
    assert torch.equal(torch.get_rng_state(), drawn)


def test_what_is_slower_stays_eager_and_says_so() -> None:
    call, step, how = led(times(2 * MS, 3 * MS))
    watch = CallsWatch([call])
    for _ in range(3):
        step(4)
        why = watch.trouble()
    assert how == ["eager"] * 3
    assert why is not None
    assert "slower" in why
    assert call.broken is None


def test_a_kind_that_is_slower_stays_eager_beside_one_that_pays() -> None:
    call, step, how = led(times(2 * MS, 1 * MS), times(2 * MS, 3 * MS))
    watch = CallsWatch([call])
    for rows in (4, 5, 5, 5, 4, 5):
        step(rows)
        assert watch.trouble() is None
    assert how == ["compiled", "eager", "eager", "eager", "compiled", "eager"]
    told = watch.times()
    assert told is not None
    plain_ns, other_ns = (2 * 2 + 4 * 2) * MS / 6, (2 * 1 + 4 * 2) * MS / 6  # two calls save one ms each
    assert (told["plain_ns"], told["other_ns"]) == pytest.approx((plain_ns, other_ns))
    assert told["kinds"] == 2
    assert told["least_ns"] < told["other_ns"] < told["most_ns"]


def test_a_model_stays_compiled_as_long_as_one_of_its_modules_gains() -> None:
    slow, first, _ = led(times(2 * MS, 3 * MS))
    fast, second, _ = led(times(2 * MS, 1 * MS))
    watch = CallsWatch([slow, fast])
    first(4)
    assert watch.trouble() is None  # the other one is not known yet
    second(4)
    assert watch.trouble() is None


def test_nothing_is_told_before_something_was_timed_or_where_that_failed() -> None:
    call, step, how = led(None)
    watch = CallsWatch([call])
    assert watch.times() is None
    step(4)
    assert watch.trouble() is None
    assert watch.times() is None
    assert how == ["compiled"]


def test_calls_whose_shape_never_comes_again_are_not_counted_for_ever() -> None:
    call, step, _ = led(times(2 * MS, 1 * MS))
    for rows in range(1, 2 * MOST_MET):
        step(rows)
    assert len(call.count) <= MOST_MET + 2
