"""What a replay warns of is neither shown nor remembered; what other threads warn of is the job's."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator

import pytest
import torch

from autobrrr.injected.job_state.hushed_warnings import hushed


@pytest.fixture(autouse=True)
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    found: list[str] = []
    globals().pop("__warningregistry__", None)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        monkeypatch.setattr(warnings, "showwarning", lambda message, *_, **__: found.append(str(message)))
        yield found


def warn(said: str) -> None:
    warnings.warn(said, stacklevel=1)


def test_the_job_shows_itself_what_a_replay_met_first(shown: list[str]) -> None:
    with hushed(torch):
        warn("met")
    assert shown == []
    warn("met")
    warn("met")
    assert shown == ["met"]


def test_code_that_sets_filters_in_a_replay_makes_nothing_show_again(shown: list[str]) -> None:
    warn("once")
    with hushed(torch):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warn("once")
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always")
            warn("for itself")
        warn("once")
    warn("once")
    assert shown == ["once"]
    assert [str(each.message) for each in recorded] == ["for itself"]


def test_other_threads_are_heard(shown: list[str]) -> None:
    with hushed(torch):
        other = threading.Thread(target=warn, args=("other",))
        other.start()
        other.join()
    assert shown == ["other"]


def test_what_torch_warns_of_once_is_still_to_come(shown: list[str]) -> None:
    filters, vector = list(warnings.filters), torch.zeros(2, 3, 4)
    with hushed(torch):
        vector.T  # noqa: B018
    assert warnings.filters == filters
    assert not torch.is_warn_always_enabled()
    vector.T  # noqa: B018
    assert len(shown) == 1


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


def test_a_process_that_is_forked_within_warns_as_before() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with hushed(torch):
            warnings.warn("not here", stacklevel=1)
            child = os.fork()
            if not child:
                try:
                    warnings.warn("there", stacklevel=1)
                except UserWarning:
                    os._exit(7)
                finally:
                    os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
