"""The process that fills torch's cache ends with whoever waits for it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from autobrrr.sidecar.process import cache_filler
from autobrrr.sidecar.process.cache_filler import CacheFiller
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


@pytest.mark.parametrize("at_once", [True, False])
def test_it_ends_when_it_is_stopped(at_once: bool, started: list[subprocess.Popen[bytes]]) -> None:
    filler = CacheFiller(1, b"")
    while not (at_once or started):
        time.sleep(0.01)
    filler.stop("it took too long")
    assert filler.done()
    assert filler.why == "it took too long"
    assert started[0].poll() is not None


def test_a_job_that_shows_no_graphs_starts_nothing(started: list[subprocess.Popen[bytes]]) -> None:
    filler = CacheFiller(1, "the job has shown no graphs")
    filler.stop("it took too long")
    assert (filler.done(), filler.why, started) == (True, "the job has shown no graphs", [])


@pytest.mark.parametrize(("said", "why"), [(b"null", None), (b'"not all"', "not all")])
def test_it_tells_why_the_cache_lacks_a_graph(
    said: bytes, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_filler, "run_beside", lambda *_, **__: said)
    filler = CacheFiller(1, b"")
    while not filler.done():
        time.sleep(0.01)
    assert filler.why == why
