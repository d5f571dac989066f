"""The table of agreement: every row carries its regime, and nothing else does."""

from dataclasses import replace
from itertools import product

import pytest

from autobrrr.diagnosis.signal_reading import Reading, abstention
from autobrrr.diagnosis.signals.signal_table import SIGNALS
from autobrrr.diagnosis.verdict.agreement import (
    AGREEMENT,
    TIMELINE,
    Pair,
    both_firm,
    carried,
    opposed,
    partners,
    supported,
    within,
)
from autobrrr.records import Regime

ROWS = {f"{pair.regime}: {pair.first} + {pair.second}": pair for pair in AGREEMENT}


def says(signal: str, regime: Regime | None, firm: bool = True) -> Reading:
    return Reading(signal=signal, value=0.7, unit="share of step", note="-", says=regime, firm=firm)


def denies(signal: str, regime: Regime) -> Reading:
    return Reading(signal=signal, value=0.1, unit="share of step", note="-", against=(regime,))


def second(pair: Pair, firm: bool = True) -> Reading:
    """The second signal of a row as the row wants it: saying its regime, or of a value within limits."""
    if pair.second_within is None:
        return says(pair.second, pair.regime, firm)
    low, high = pair.second_within
    value = 1.0 if high >= 1 else 0.0
    if not firm:  # at the closed end
        value = low if high >= 1 else high
    return Reading(signal=pair.second, value=value, unit="share of step", note="-", firm=firm)


def row(pair: Pair, firm: bool = True) -> dict[str, Reading]:
    """All that a row needs."""
    spoken = [says(pair.first, pair.regime), second(pair, firm)]
    if pair.without is not None:
        spoken.append(denies("traced_steps", pair.without))
    return readings(*spoken)


def silent() -> dict[str, Reading]:
    return {name: abstention(name, "share of step", "not measured in this test") for name in SIGNALS}


def readings(*spoken: Reading) -> dict[str, Reading]:
    return silent() | {reading.signal: reading for reading in spoken}


@pytest.mark.parametrize("pair", ROWS.values(), ids=ROWS)
def test_both_signals_of_a_row_carry_its_regime(pair: Pair) -> None:
    (found,) = carried(row(pair))
    assert found == pair
    assert both_firm(row(pair), pair)


@pytest.mark.parametrize("pair", ROWS.values(), ids=ROWS)
def test_one_signal_of_a_row_alone_carries_nothing(pair: Pair) -> None:
    assert carried(readings(says(pair.first, pair.regime))) == []
    assert carried(readings(says(pair.second, pair.regime))) == []
    beside = replace(second(pair), says=None, value=0.4 if pair.second_within != (0.0, 0.5) else 0.6)
    assert carried(row(pair) | {pair.second: beside}) == []


@pytest.mark.parametrize("pair", ROWS.values(), ids=ROWS)
def test_a_row_is_only_as_firm_as_both_of_its_signals(pair: Pair) -> None:
    (found,) = carried(row(pair, firm=False))
    assert not both_firm(row(pair, firm=False), found)


@pytest.mark.parametrize("pair", ROWS.values(), ids=ROWS)
def test_any_signal_that_excludes_the_regime_stops_a_row(pair: Pair) -> None:
    for signal in set(SIGNALS) - {pair.first, pair.second}:
        denial = denies(signal, pair.regime)
        spoken = row(pair) | {signal: denial}
        assert carried(spoken) == [], signal
        assert opposed(spoken, pair.regime) == [denial]
        assert len(supported(spoken, pair.regime)) == (2 if pair.second_within is None else 1)


@pytest.mark.parametrize("regime", ["overhead", "input", "host", "memory", "compute"])
def test_pairs_that_are_not_in_the_table_carry_nothing(regime: Regime) -> None:
    for first, second in product(SIGNALS, repeat=2):
        listed = any(
            {pair.first, pair.second} == {first, second} and pair.regime == regime and pair.without is None
            for pair in AGREEMENT
            if within(says(pair.second, regime), pair.second_within or (0.0, 1.0))
        )
        found = carried(readings(says(first, regime), says(second, regime)))
        assert bool(found) == listed, (first, second)


def test_a_flat_probe_confirms_memory_only_where_traced_steps_exclude_dispatch() -> None:
    (pair,) = (pair for pair in AGREEMENT if pair.regime == "memory" and pair.second == "batch_probe")
    assert carried(row(pair))
    assert carried(row(pair) | {"traced_steps": says("traced_steps", None)}) == []


def test_counted_operators_stand_in_for_the_probe_only_where_it_is_silent() -> None:
    spoken = says("traced_steps", "overhead"), says("op_cost", "overhead")
    assert carried(readings(*spoken))
    assert carried(readings(*spoken, says("batch_probe", None))) == []


def test_a_firm_pair_comes_before_one_that_is_not() -> None:
    found = carried(
        readings(
            says("loader_wait", "input"),
            says("loader_queue", "input", firm=False),
            says("loader_frames", "input"),
        )
    )
    assert [one.second for one in found] == ["loader_frames", "loader_queue"]


def test_every_row_says_why_its_signals_are_two() -> None:
    for pair in (*AGREEMENT, *TIMELINE):
        assert pair.first != pair.second
        left, right = pair.independent.split("; ")
        assert left != right
        assert pair in TIMELINE or pair.second in partners(pair.first, pair.regime)
