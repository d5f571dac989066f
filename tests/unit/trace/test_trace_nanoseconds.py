"""Microseconds become nanoseconds exactly as decimals do."""

from __future__ import annotations

import json
from decimal import Decimal

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


@given(st.lists(st.integers(0, 2**50), min_size=1, max_size=30))
def test_durations_of_up_to_two_weeks_keep_their_nanoseconds(lengths: list[int]) -> None:
    texts = [f"{ns // 1000}.{ns % 1000:03d}" for ns in lengths]
    assert from_numbers([json.loads(text) for text in texts]).tolist() == lengths


def test_what_is_no_number_is_missing_and_never_zero() -> None:
    assert to_ns("nan") == to_ns("") == to_ns("later") == to_ns("inf") == MISSING
    assert from_texts([Raw(b""), Raw(b"5")]).tolist() == [MISSING, 5000]
    assert from_numbers([None, 5.5, 1e300]).tolist() == [MISSING, 5500, MISSING]


def test_exponents_and_quotes_are_read() -> None:
    assert from_texts([Raw(b"1.5e3"), Raw(b'"12.5"'), Raw(b"-2.5")]).tolist() == [1_500_000, 12_500, -2_500]
    assert to_ns("1e-9999999") == 0
