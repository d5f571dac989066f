"""What contracts of remedies start from and leave behind."""

import gc
from collections.abc import Iterator

import pytest

from support import examples

examples.load()


@pytest.fixture
def machine_as_before(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Iterator[None]:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    enabled, threshold = gc.isenabled(), gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()
    if enabled:
        gc.enable()
