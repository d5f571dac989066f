"""Warnings of a replay are not heard, and nothing of that is left to the job."""

from __future__ import annotations

import threading
import warnings

import torch

from autobrrr.injected.job_state.hushed_warnings import hushed


def test_filters_that_another_thread_keeps_meanwhile_hush_nothing_afterwards() -> None:
    inside, done = threading.Event(), threading.Event()

    def catches() -> None:
        with warnings.catch_warnings():
            inside.set()
            done.wait(60)

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        other = threading.Thread(target=catches)
        with hushed(torch):
            other.start()
            assert inside.wait(60)
            warnings.warn("of a replay", stacklevel=1)
        warnings.warn("of the job", stacklevel=1)  # by the other thread's copy of the filters
        done.set()
        other.join()
    assert [str(each.message) for each in heard] == ["of the job"]
