"""The samples of a step are those of the batch that the loader returns, whatever ran while it was made."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from autobrrr.injected.phases import loader_watch


def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(("before", "after"), [(-1, 64), (32, 32)])
def test_a_transform_that_is_a_module_is_not_taken_for_the_batch(before: int, after: int) -> None:
    phases = SimpleNamespace(
        on=True,
        samples=before,
        load_enter=lambda now_ns: None,
        load_exit=lambda now_ns: None,
        tokens_loaded=lambda count: None,
    )

    def fetch(_: object) -> object:
        if phases.samples < 0:
            phases.samples = 1  # as the hook of a root module does for one image
        return SimpleNamespace(shape=(64, 1, 28, 28))

    watch = SimpleNamespace(saw=lambda iterator: None)
    following = loader_watch.make_next(fetch, phases, watch, threading.get_ident(), fail)  # type: ignore[arg-type]
    following(object())
    assert phases.samples == after
