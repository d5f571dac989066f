"""Other threads of the job: what they draw while a replay runs is never taken back."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator

import numpy
import pytest

from autobrrr.injected.job_state.threads_beside import thread_beside
from support.attach import eventually
from support.batch_probe.shadow import mlp
from support.batch_probe.shadow_loop import train

pytestmark = pytest.mark.integration

Work = Callable[[threading.Event], None]


@contextlib.contextmanager
def beside(work: Work) -> Iterator[None]:
    """A thread of the job that has begun."""
    ended, begun = threading.Event(), threading.Event()

    def run() -> None:
        begun.set()
        work(ended)

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def feeds(ended: threading.Event) -> None:
    """Makes batches ahead, as scripts with a thread for that do."""
    ahead: queue.Queue[object] = queue.Queue(maxsize=2)
    while not ended.is_set():
        with contextlib.suppress(queue.Full):
            ahead.put(numpy.random.rand(4), timeout=0.05)


def monitors(ended: threading.Event) -> None:
    while not ended.is_set():
        time.sleep(0.01)


def stops_when_told(ended: threading.Event) -> None:
    while not ended.wait(0.01):
        pass


class Filler:
    """Fills a buffer now and then, in a method."""

    def __init__(self) -> None:
        self.ahead: list[object] = []

    def fill(self) -> None:
        self.ahead = [numpy.random.rand(4)]

    def work(self, ended: threading.Event) -> None:
        while not ended.is_set():
            self.fill()
            time.sleep(0.01)


def serves(ended: threading.Event) -> None:
    async def serve() -> None:
        while not ended.is_set():
            await asyncio.sleep(0.01)

    asyncio.run(serve())


def waits_for_another(ended: threading.Event) -> None:
    other = threading.Thread(target=ended.wait)
    other.start()
    other.join()


def test_nothing_is_replayed_beside_a_thread_that_draws() -> None:
    with beside(feeds):
        outcome = train(mlp, 40, probe=True)
    assert outcome.probed is not None
    assert outcome.probed["status"] == "abstained"
    assert "runs on another thread, which may draw random numbers" in str(outcome.probed)
    assert outcome.fingerprint == train(mlp, 40, probe=False).fingerprint


def test_a_thread_whose_methods_draw_is_no_monitor() -> None:
    with beside(Filler().work):
        for _ in range(100):
            assert thread_beside() in ("Filler.work", "Filler.fill", "work", "fill")
            time.sleep(0.001)


def agent(ended: threading.Event) -> None:
    """As what brings the agent runs it: under a name of neither's."""
    entry = {"__name__": "autobrrr.injected.entry"}
    exec("def start(wait):\n while not wait(0.001): pass", entry)
    exec("start(wait)", {"__name__": "brought", "start": entry["start"], "wait": ended.wait})


@pytest.mark.parametrize("work", [monitors, stops_when_told, serves, waits_for_another])
def test_a_thread_that_only_waits_is_no_hindrance(work: Work) -> None:
    with beside(work):
        eventually(lambda: thread_beside() is None)


def test_the_agents_own_thread_is_no_hindrance() -> None:
    with beside(agent):
        for _ in range(200):
            assert thread_beside() is None
            time.sleep(0.001)
