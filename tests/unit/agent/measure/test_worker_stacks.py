"""A forked worker's stack is read from its memory, by offsets found in this very process."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from autobrrr.agent.measure.worker_stacks import (
    FETCH,
    WORD,
    WORKER_LOOP,
    Memory,
    NoStack,
    WorkerLooks,
    find_layout,
    stack_of,
)

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11) or sys.platform != "linux", reason="frames of this version are not read"
)
ITEM = """
from os import write
from signal import pause
def item(ready):
    write(ready, b".")
    pause()
"""
SOURCES = {
    f"/x/site-packages/{WORKER_LOOP}": "def loop(ready, fetch, item):\n    fetch(ready, item)\n",
    f"/x/site-packages/{FETCH}": "def fetch(ready, item):\n    item(ready)\n",
    "/home/somebody/data.py": ITEM,
}


@pytest.fixture
def worker() -> Iterator[int]:
    names: dict[str, object] = {}
    for file, source in SOURCES.items():
        exec(compile(source, file, "exec"), names)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            names["loop"](write, names["fetch"], names["item"])  # type: ignore[operator]
        finally:
            os._exit(0)
    os.read(read, 1)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(read)
    os.close(write)


def until_read(looks: WorkerLooks, pid: int) -> None:
    for _ in range(500):  # it may be between two of its lines
        looks.look([pid])
        if looks.busy:
            return
        time.sleep(0.01)


def test_a_worker_at_work_is_found_at_the_user_s_line(worker: int) -> None:
    ident = threading.get_ident()
    with ThreadPoolExecutor(1) as agent:  # another thread than the one that forked
        looks = agent.submit(WorkerLooks, ident, ("/usr/lib/",)).result()
        agent.submit(until_read, looks, worker).result()
    assert set(looks.busy) <= {"data.py:5 item", "data.py:6 item"}
    assert looks.looks == looks.busy.total() == 1


def test_what_is_no_worker_counts_for_nothing() -> None:
    looks = WorkerLooks(threading.get_ident(), ())
    looks.look([])
    looks.look([os.getpid()])
    assert looks.looks == 0


def test_memory_that_is_not_there_is_no_stack() -> None:
    layout = find_layout(threading.get_ident())
    with pytest.raises((NoStack, OSError, ValueError)):
        stack_of(Memory(pid=os.getpid()), replace(layout, state=WORD))
