"""The profiler's own log is quiet around a window, and as it was afterwards."""

from __future__ import annotations

import gc
from types import ModuleType

import pytest
import torch

from autobrrr.injected.measure import kineto_log


def level() -> int:
    found = kineto_log._level(torch)
    assert found is not None
    return found.value


def test_nothing_is_told_within_and_the_level_is_put_back() -> None:
    before = level()
    with kineto_log.quiet(torch):
        assert level() == kineto_log.NOTHING
    assert level() == before


def test_a_level_that_is_set_within_stays() -> None:
    before = level()
    found = kineto_log._level(torch)
    assert found is not None
    try:
        with kineto_log.quiet(torch):
            found.value = before + 1
        assert level() == before + 1
    finally:
        found.value = before


@pytest.mark.parametrize("library", ["libc.so.6", "no_library.so"])
def test_a_torch_without_the_symbol_tells_on(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = ModuleType("torch")
    elsewhere.__file__ = "/nowhere/torch/__init__.py"
    monkeypatch.setattr(kineto_log, "LIBRARIES", (library,))
    monkeypatch.setattr(kineto_log.os.path, "join", lambda *parts: parts[-1])
    with kineto_log.quiet(elsewhere):
        assert kineto_log._level(elsewhere) is None


def test_a_window_makes_no_class_that_only_a_collection_ends() -> None:
    def libraries() -> int:
        return sum(kind.__name__ == "_FuncPtr" for kind in gc.get_objects() if isinstance(kind, type))

    with kineto_log.quiet(torch):
        before = libraries()
    gc.disable()
    try:
        with kineto_log.quiet(torch):
            pass
        assert libraries() == before
    finally:
        gc.enable()
