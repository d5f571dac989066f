"""The process that fills torch's cache ends with whoever waits for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from autobrrr.errors import TargetGone
from autobrrr.sidecar.process import cache_filler
from autobrrr.sidecar.process.cache_filler import fill_cache
from autobrrr.sidecar.process.job_program import NotRun


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Processes that were started in place of the job's Python; each would run for a minute."""
    found: list[subprocess.Popen[bytes]] = []

    def run_beside(
        pid: int, modules: object, given: Callable[[object], bytes], *_: object, **__: object
    ) -> bytes:
        found.append(subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"]))
        given(found[0])
        found[0].wait()
        raise NotRun("it was stopped")

    monkeypatch.setattr(cache_filler, "run_beside", run_beside)
    return found


def test_it_ends_where_it_takes_too_long(started: list[subprocess.Popen[bytes]]) -> None:
    why = fill_cache(1, b"", lambda: bool(started))
    assert why == "it took too long, or slowed training down"
    assert started[0].poll() is not None


def test_it_ends_where_the_session_does(started: list[subprocess.Popen[bytes]]) -> None:
    def stop() -> bool:
        if started:
            raise TargetGone("the session ended")
        return False

    with pytest.raises(TargetGone):
        fill_cache(1, b"", stop)
    assert started[0].poll() is not None


@pytest.mark.parametrize(("said", "why"), [(b"null", None), (b'"not all"', "not all")])
def test_it_tells_why_the_cache_lacks_a_graph(
    said: bytes, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_filler, "run_beside", lambda *_, **__: said)
    assert fill_cache(1, b"", lambda: False) == why
