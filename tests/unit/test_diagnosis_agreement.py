"""The table of agreement: every row carries its regime, and nothing else does."""

from __future__ import annotations

import pytest

from autobrrr.diagnosis.agreement import AGREEMENT, Pair, carried, opposed, partners, supported
from autobrrr.diagnosis.reading import Reading, abstention
from autobrrr.diagnosis.signals import SIGNALS
from autobrrr.records import Regime

ROWS = {f"{pair.regime}: {pair.first} + {pair.second}": pair for pair in AGREEMENT}


def says(signal: str, regime: Regime | None, firm: bool = True) -> Reading:
    return Reading(signal=signal, value=0.7, unit="share of step", note="-", says=regime, firm=firm)


def denies(signal: str, regime: Regime) -> Reading:
    return Reading(signal=signal, value=0.1, unit="share of step", note="-", against=(regime,))


def silent() -> dict[str, Reading]:
    return {name: abstention(name, "share of step", "not measured in this test") for name in SIGNALS}


def readings(*spoken: Reading) -> dict[str, Reading]:
    return silent() | {reading.signal: reading for reading in spoken}


@pytest.mark.parametrize("pair", ROWS.values(), ids=ROWS)
def test_both_signals_of_a_row_carry_its_regime(pair: Pair) -> None:
    (found,) = carried(readings(says(pair.first, pair.regime), says(pair.second, pair.regime)))
    assert (found.regime, found.pair, found.firm) == (pair.regime, pair, True)


@pytest.mark.parametrize("pair", ROWS.values(), ids=ROWS)
def test_one_signal_of_a_row_alone_carries_nothing(pair: Pair) -> None:
    assert carried(readings(says(pair.first, pair.regime))) == []
    assert carried(readings(says(pair.second, pair.regime))) == []
    assert carried(readings(says(pair.first, pair.regime), says(pair.second, None))) == []


@pytest.mark.parametrize("pair", ROWS.values(), ids=ROWS)
def test_a_row_is_only_as_firm_as_both_of_its_signals(pair: Pair) -> None:
    (found,) = carried(readings(says(pair.first, pair.regime), says(pair.second, pair.regime, firm=False)))
    assert not found.firm


@pytest.mark.parametrize("pair", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("signal", sorted(SIGNALS))
def test_any_signal_that_excludes_the_regime_stops_a_row(pair: Pair, signal: str) -> None:
    if signal in (pair.first, pair.second):
        return
    spoken = says(pair.first, pair.regime), says(pair.second, pair.regime), denies(signal, pair.regime)
    assert carried(readings(*spoken)) == []
    assert opposed(readings(*spoken), pair.regime) == [spoken[2]]
    assert len(supported(readings(*spoken), pair.regime)) == 2


@pytest.mark.parametrize("first", sorted(SIGNALS))
@pytest.mark.parametrize("second", sorted(SIGNALS))
def test_pairs_that_are_not_in_the_table_carry_nothing(first: str, second: str) -> None:
    for regime in ("overhead", "input", "host", "memory", "compute"):
        listed = any(
            {pair.first, pair.second} == {first, second} and pair.regime == regime for pair in AGREEMENT
        )
        found = carried(readings(says(first, regime), says(second, regime)))
        assert bool(found) == listed


def test_counted_operators_stand_in_for_the_probe_only_where_it_is_silent() -> None:
    spoken = says("traced_steps", "overhead"), says("op_cost", "overhead")
    assert carried(readings(*spoken))
    assert carried(readings(*spoken, says("batch_probe", None))) == []


def test_the_probe_and_counted_operators_never_carry_overhead_without_the_trace() -> None:
    assert carried(readings(says("batch_probe", "overhead"), says("op_cost", "overhead"))) == []


def test_a_firm_pair_comes_before_one_that_is_not() -> None:
    found = carried(
        readings(
            says("loader_wait", "input"),
            says("loader_queue", "input", firm=False),
            says("loader_frames", "input"),
        )
    )
    assert [one.pair.second for one in found] == ["loader_frames", "loader_queue"]


def test_every_row_says_why_its_signals_are_two() -> None:
    for pair in AGREEMENT:
        assert pair.first != pair.second
        left, right = pair.independent.split("; ")
        assert left != right
        assert pair.second in partners(pair.first, pair.regime)
