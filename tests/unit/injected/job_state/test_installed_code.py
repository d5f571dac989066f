"""Whose code a class is: the standard library's, an installed package's, or the job's own."""

from __future__ import annotations

import numpy as np

from autobrrr.injected.job_state.installed_code import home_of, is_library


class Record:
    """A class of the job's own."""


def test_a_class_is_told_by_where_it_was_made_and_not_by_what_it_claims() -> None:
    assert [home_of(each) for each in (int, np.ndarray, Record)] == ["builtins", "numpy", __name__]
    assert home_of(type("Claims", (), {"__module__": "builtins"})) == ""


def test_a_package_that_is_installed_but_not_imported_is_a_library() -> None:
    assert is_library("wheel") or is_library("pip")
    assert not is_library("no_such_package_at_all")
