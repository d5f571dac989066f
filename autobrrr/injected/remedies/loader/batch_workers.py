"""Processes that make batches ahead, from the dataset as it was when they were forked.

A batch counts as made only where nothing else came of it: no random number was drawn, nothing that the
dataset holds was set or written to, and the fence (`fenced_process.py`) was not touched. Else it is declined,
and whoever asked makes it.
"""

from __future__ import annotations

import bisect
import ctypes
import enum
import itertools
import mmap
import os
import pickle
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...job_state import rng_state
from ...live_torch.handler_errors import let_through
from ...wire.process_link import ProcessLink
from .dataset_state import DatasetState
from .fenced_process import Fence, FencedProcess
from .sent_batches import receive, send

PATIENCE_S = 60.0  # for one batch
MOST_IN_A_SET = 256
LOOK_S = 5.0  # whether the job is there
MOST_ASKED_BYTES = 1 << 16  # of one worker
ROOM_BYTES = 4 << 20  # of a batch, beyond what its items take; memory is taken as it is written to
DECLINED = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTask:
    """What the workers of one epoch are to do.

    Attributes:
        fetch: Makes the batch of an index, as the job does.
        state: Of what makes batches, at the moment of the fork.
        room_bytes: Most that the contents of a batch take.
        draws: Random numbers may be drawn, from the worker's own seed.
        seed: Of the first worker; each other one has the next.
    """

    fetch: Callable[[object], object]
    state: DatasetState
    room_bytes: int
    draws: bool
    seed: int


class Workers:
    """Some processes; batches go round.

    Raises:
        OSError: one can't be started.
    """

    def __init__(self, task: BatchTask, count: int, ahead: int) -> None:
        self.state = task.state
        self._owner = os.getpid()
        self._room = task.room_bytes
        self._ahead = ahead
        self._asked = self._taken = 0
        self._links: list[tuple[FencedProcess, memoryview]] = []
        try:
            for number in range(count):
                self._start(task, number)
        except BaseException:
            self.close()
            raise

    def _start(self, task: BatchTask, number: int) -> None:
        region = memoryview(mmap.mmap(-1, self._room * (self._ahead + 1)))  # and the one that is being taken
        parts = partial(_part, region, ahead=self._ahead)
        others = [process.link for process, _ in self._links]
        work = partial(_work, task, number, parts)
        self._links.append((FencedProcess(work, others=others, region=region), region))

    @property
    def is_idle(self) -> bool:
        """All that they were asked for was taken."""
        return self._asked == self._taken and bool(self._links)

    def ask(self, index: object) -> int | None:
        """Have a batch made: its number; None where its index can't be sent, or not without waiting.

        Raises:
            OSError: the worker is gone.
        """
        try:
            asked = pickle.dumps(index, protocol=5)
        except Exception as error:  # noqa: BLE001
            let_through(error)
            return None
        if len(asked) > MOST_ASKED_BYTES // self._ahead:
            return None
        number = self._asked
        if not self._links[number % len(self._links)][0].link.offer(asked):
            return None
        self._asked += 1
        return number

    def take(self, number: int) -> object:
        """The batch with this number, or `DECLINED`; of each worker they come in the order of asking.

        Raises:
            OSError, EOFError: the worker is gone, or takes too long.
        """
        process, region = self._links[number % len(self._links)]
        answer = process.link.receive(PATIENCE_S)
        self._taken += 1
        turn = number // len(self._links)
        return receive(answer, _part(region, turn, ahead=self._ahead)) if answer else DECLINED

    def has(self, number: int) -> bool:
        """Whether an answer is there; any thread may ask."""
        links = self._links
        return bool(links) and links[number % len(links)][0].link.is_ready(0)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close()

    def kill(self) -> None:
        """End the processes; another thread may still ask for what they have made."""
        for process, _ in self._links:
            process.kill()

    def close(self) -> None:
        """End them: what they still make is for nobody."""
        if os.getpid() != self._owner:
            return
        links, self._links = self._links, []
        for process, _ in links:
            process.close()


def _part(region: memoryview, turn: int, *, ahead: int) -> memoryview:
    """Where the contents of a worker's batch lie."""
    size = len(region) // (ahead + 1)
    begin = turn % (ahead + 1) * size
    return region[begin : begin + size]


def _work(
    task: BatchTask, number: int, part: Callable[[int], memoryview], link: ProcessLink, fence: Fence
) -> None:
    """All that a worker does."""
    maker = _Maker(task, number, fence)
    parent, turn = os.getppid(), 0
    while os.getppid() == parent:
        if not link.is_ready(LOOK_S):
            continue
        index = pickle.loads(link.receive(PATIENCE_S))
        link.send(maker.make(index, part(turn)))
        turn += 1


class _Maker:
    """Makes batches in a process of its own, and sees what else comes of it."""

    def __init__(self, task: BatchTask, number: int, fence: Fence) -> None:
        self._task = task
        self._fence = fence
        self._held = HeldMemory(task.state)
        self._is_spoiled = False  # what it holds is not what the job holds any more
        torch = sys.modules["torch"]
        torch.set_num_threads(1)
        if task.draws:
            seed = (task.seed + number) % (1 << 63)
            random.seed(seed)
            torch.manual_seed(seed)
            if "numpy.random" in sys.modules:
                sys.modules["numpy.random"].seed(seed % (1 << 32))

    def make(self, index: object, region: memoryview) -> bytes:
        """The batch, as it is sent; empty where it is declined."""
        if self._is_spoiled:
            return b""
        torch, sent = sys.modules["torch"], b""
        before = None if self._task.draws else rng_state.states(torch)
        try:
            sent = send(self._task.fetch(index), region, self._held)
        except BaseException:  # noqa: BLE001  the job makes it, and meets whatever it is
            sent = b""
        self._is_spoiled = self._fence.is_touched or not self._task.state.is_as_it_was
        drawn = before is not None and rng_state.drew(before, rng_state.states(torch))
        return b"" if self._is_spoiled or drawn else sent


class HeldMemory:
    """What is the dataset's own: objects that others could write to, and where its contents lie."""

    def __init__(self, state: DatasetState) -> None:
        named = tuple, frozenset, type, enum.Enum  # or unchanging: what arrives is the same
        kept = [each for each in state.held.parts if not isinstance(each, named)]
        self._ids = {id(each) for each in (*kept, *state.held.contents) if not callable(each)}
        spans = sorted(filter(None, map(_span_of, state.held.contents)))
        self._begins = [begin for begin, _ in spans]
        self._ends = list(itertools.accumulate((end for _, end in spans), max))

    def __contains__(self, value: object) -> bool:
        return id(value) in self._ids

    def has_place(self, begin: int, size: int) -> bool:
        """Whether some of this memory is some of it."""
        at = bisect.bisect_left(self._begins, begin + size) - 1
        return at >= 0 and begin < self._ends[at]


def _span_of(contents: Any) -> tuple[int, int] | None:
    """Where a tensor or an array lies; None where that can't be said, or is nowhere."""
    try:
        if hasattr(contents, "untyped_storage"):
            storage = contents.untyped_storage()
            begin, size = storage.data_ptr(), storage.nbytes()
        elif hasattr(contents, "flags"):
            steps = [
                (count - 1) * stride for count, stride in zip(contents.shape, contents.strides, strict=True)
            ]
            first = contents.__array_interface__["data"][0]
            begin = first + sum(step for step in steps if step < 0)
            size = (
                contents.size and first + sum(step for step in steps if step > 0) + contents.itemsize - begin
            )
        else:
            view = memoryview(contents)
            begin, size = ctypes.addressof(ctypes.c_char.from_buffer(view)), view.nbytes
    except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError):
        return None
    return (begin, begin + size) if size else None
