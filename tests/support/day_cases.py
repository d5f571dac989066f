"""Cases of which a few run in `make test`, one of each kind, and all in `make nightly`."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

Case = TypeVar("Case")


def by_day(cases: Iterable[Case], chosen: Callable[[Case], bool]) -> list[Case | ParameterSet]:
    """Parameters of a test: those that are not chosen are marked `nightly`."""
    return [case if chosen(case) else at_night(case) for case in cases]


def at_night(case: object) -> ParameterSet:
    """A case that only `make nightly` runs; a tuple holds the values of several parameters."""
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.nightly)
