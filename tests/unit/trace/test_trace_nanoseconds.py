"""Microseconds become nanoseconds exactly as decimals do."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from autobrrr.trace.reading.nanoseconds import MISSING, from_numbers, from_texts, to_ns


def exactly(text: str) -> int:
    return round(Decimal(text) * 1000)


numbers = st.one_of(
    st.integers(0, 2**52).map(str),
    st.tuples(st.integers(0, 2 * 10**15), st.integers(0, 999)).map(
        lambda parts: f"{parts[0]}.{parts[1]:03d}"
    ),
    st.tuples(st.integers(0, 10**9), st.integers(0, 10**6 - 1)).map(
        lambda parts: f"{parts[0]}.{parts[1]:06d}"
    ),
)


@given(st.lists(numbers, min_size=1, max_size=30))
def test_digits_give_the_exact_decimal_rounded_half_to_even(texts: list[str]) -> None:
    found = from_texts([Raw(text.encode()) for text in texts])
    assert found.tolist() == [exactly(text) for text in texts]


@given(st.lists(numbers, min_size=1, max_size=30))
def test_floats_are_used_only_where_they_give_the_exact_decimal(texts: list[str]) -> None:
    found = from_numbers([json.loads(text) for text in texts])
    if found is not None:
        assert found.tolist() == [exactly(text) for text in texts]


def test_a_float_of_today_s_epoch_is_refused_since_it_has_lost_a_quarter_of_a_microsecond() -> None:
    assert from_numbers([1733767137045419.368]) is None
    assert from_texts([Raw(b"1733767137045419.368")]).tolist() == [1733767137045419368]


def test_whole_microseconds_of_today_s_epoch_need_no_digits() -> None:
    found = from_numbers([1623142623461655, 1623142623461656])
    assert found is not None
    assert found.tolist() == [1623142623461655000, 1623142623461656000]


def test_halves_round_to_even() -> None:
    assert [to_ns("1.0005"), to_ns("1.0015"), to_ns("1.00051")] == [1000, 1002, 1001]
    found = from_numbers([1.0005, 1.0015, 1.00051])
    assert found is not None
    assert found.tolist() == [1000, 1002, 1001]


def test_what_is_no_number_is_missing_and_never_zero() -> None:
    assert to_ns("nan") == to_ns("") == to_ns("later") == to_ns("inf") == MISSING
    assert from_texts([Raw(b""), Raw(b"5")]).tolist() == [MISSING, 5000]
    found = from_numbers([None, 5.5])
    assert found is not None
    assert found.tolist() == [MISSING, 5500]


@pytest.mark.parametrize("text", ["1e300000", "1e9999999", "-1e999990", "9" * 5000])
def test_a_number_beyond_any_time_is_missing(text: str) -> None:
    assert to_ns(text) == MISSING


def test_exponents_and_quotes_are_read() -> None:
    assert from_texts([Raw(b"1.5e3"), Raw(b'"12.5"'), Raw(b"-2.5")]).tolist() == [1_500_000, 12_500, -2_500]
    assert to_ns("1e-9999999") == 0


def test_a_start_of_more_digits_than_fit_is_missing_not_another_time() -> None:
    texts = [Raw(b"1733767137045403"), Raw(b"17337671370454031733"), Raw(b"173376713704540317.5")]
    assert from_texts(texts).tolist() == [1733767137045403000, MISSING, MISSING]
