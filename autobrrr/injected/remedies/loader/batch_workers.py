"""Processes that make batches ahead, from the dataset as it was when they were forked.

A batch counts as made only where nothing else came of it: no random number was drawn, nothing that the
dataset holds was set or written to, nothing was printed, no file opened to write, no process started. Else it
is declined, and whoever asked makes it. What would reach beyond its process is not done in a worker: it fails
there.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import pickle
import random
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from multiprocessing import process as processes
from multiprocessing.connection import Connection, Pipe
from typing import Any

from ...job_state import rng_state
from ...live_torch.handler_errors import let_through
from .dataset_state import DatasetState
from .sent_batches import receive, send

PATIENCE_S = 60.0  # for one batch
LOOK_S = 5.0  # whether the job is there
MOST_ASKED_BYTES = 1 << 16  # of one worker: more could fill what lies between, and both would wait
ROOM_BYTES = 4 << 20  # of a batch, beyond what its items take; memory is taken as it is written to
DECLINED = object()
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_OUTSIDE = frozenset((
    "os.chmod", "os.chown", "os.exec", "os.fork", "os.forkpty", "os.kill", "os.link", "os.mkdir",
    "os.posix_spawn", "os.putenv", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.system",
    "os.truncate", "os.unsetenv", "os.utime", "shutil.move", "shutil.rmtree", "signal.pthread_kill",
    "subprocess.Popen",
))  # fmt: skip


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
        self._links: list[tuple[Any, Connection, memoryview]] = []
        try:
            for number in range(count):
                self._start(task, number)
        except BaseException:
            self.close()
            raise

    def _start(self, task: BatchTask, number: int) -> None:
        here, there = Pipe()
        region = memoryview(mmap.mmap(-1, self._room * (self._ahead + 1)))  # and the one that is being taken
        others = [*(link for _, link, _ in self._links), here]
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        seat = _Seat(number=number, link=there, others=others, region=region, ahead=self._ahead, mask=mask)
        worker = multiprocessing.get_context("fork").Process(target=_work, args=(task, seat), daemon=True)
        try:
            worker.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            there.close()
        self._links.append((worker, here, region))
        # The job waits for its own children; ours end with us, and as soon as nobody is there to ask them.
        processes._children.discard(worker)  # type: ignore[attr-defined]

    @property
    def is_idle(self) -> bool:
        """All that they were asked for was taken."""
        return self._asked == self._taken and bool(self._links)

    def ask(self, index: object) -> int | None:
        """Have a batch made: its number; None where its index can't be sent.

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
        number, self._asked = self._asked, self._asked + 1
        self._links[number % len(self._links)][1].send_bytes(asked)
        return number

    def take(self, number: int) -> object:
        """The batch with this number, or `DECLINED`; of each worker they come in the order of asking.

        Raises:
            OSError, EOFError: the worker is gone, or takes too long.
        """
        _, link, region = self._links[number % len(self._links)]
        if not link.poll(PATIENCE_S):
            raise TimeoutError(f"no batch for {PATIENCE_S:.0f} s")
        answer = link.recv_bytes()
        self._taken += 1
        return receive(answer, self._part(region, number)) if answer else DECLINED

    def has(self, number: int) -> bool:
        """Whether an answer is there; any thread may ask."""
        links = self._links
        return bool(links) and links[number % len(links)][1].poll(0)

    def _part(self, region: memoryview, number: int) -> memoryview:
        return _part(region, number // len(self._links), self._ahead)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close()

    def close(self) -> None:
        """End them: what they still make is for nobody."""
        if os.getpid() != self._owner:
            return
        links, self._links = self._links, []
        for _, link, _ in links:
            link.close()
        for worker, _, _ in links:
            with contextlib.suppress(OSError, ValueError):
                worker.kill()
                worker.join(LOOK_S)


def _part(region: memoryview, turn: int, ahead: int) -> memoryview:
    """Where the contents of a worker's batch lie."""
    size = len(region) // (ahead + 1)
    begin = turn % (ahead + 1) * size
    return region[begin : begin + size]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seat:
    """Where one worker sits.

    Attributes:
        others: What it has of the job's ends.
        mask: Of signals, as the job has it.
    """

    number: int
    link: Connection
    others: Sequence[Connection]
    region: memoryview
    ahead: int
    mask: Collection[int]


def _work(task: BatchTask, seat: _Seat) -> None:
    """All that a worker does."""
    for each in seat.others:  # else none would see that the job is gone
        each.close()
    maker = _Maker(task, seat.number)
    signal.pthread_sigmask(signal.SIG_SETMASK, seat.mask)
    parent, turn = os.getppid(), 0
    while os.getppid() == parent:
        if not seat.link.poll(LOOK_S):
            continue
        try:
            index = pickle.loads(seat.link.recv_bytes())
            seat.link.send_bytes(maker.make(index, _part(seat.region, turn, seat.ahead)))
        except (EOFError, OSError):
            return
        turn += 1


class _Maker:
    """Makes batches in a process of its own, and sees what else comes of it."""

    def __init__(self, task: BatchTask, number: int) -> None:
        self._task = task
        self._held = held_ids(task.state)
        self._is_spoiled = False  # what it holds is not what the job holds any more
        self._reached_out = False
        for each in signal.valid_signals():
            if callable(signal.getsignal(each)):  # the job's: it is for the job to say what comes of them
                signal.signal(each, signal.SIG_DFL if each == signal.SIGCHLD else signal.SIG_IGN)
        torch = sys.modules["torch"]
        torch.set_num_threads(1)
        if task.draws:
            seed = (task.seed + number) % (1 << 63)
            random.seed(seed)
            torch.manual_seed(seed)
            if "numpy.random" in sys.modules:
                sys.modules["numpy.random"].seed(seed % (1 << 32))
        sys.dont_write_bytecode = True
        for stream in {sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__}:
            with contextlib.suppress(AttributeError):
                stream.write = self._reach_out  # type: ignore[method-assign,union-attr]
        if "logging" in sys.modules:
            sys.modules["logging"].Logger.handle = self._reach_out
        sys.addaudithook(self._hear)

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
        self._is_spoiled = self._reached_out or not self._task.state.is_as_it_was
        drawn = before is not None and rng_state.drew(before, rng_state.states(torch))
        return b"" if self._is_spoiled or drawn else sent

    def _reach_out(self, *_: object) -> int:
        """Stands for what would be seen outside: it is not, and the job will do it."""
        self._reached_out = True
        return 0

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        writes = event == "open" and type(arguments[2]) is int and arguments[2] & _WRITING
        if (writes and arguments[0] != os.devnull) or event in _OUTSIDE:
            self._reached_out = True
            raise PermissionError(f"{event} in a worker")


def held_ids(state: DatasetState) -> Collection[int]:
    """Ids and addresses of what the dataset holds and others could write to."""
    found = {id(each) for each in state.held.parts if isinstance(each, (list, dict, set))}
    found |= {
        id(each)
        for each in state.held.parts
        if hasattr(each, "__dict__") and not isinstance(each, type) and not callable(each)
    }
    for each in state.held.contents:
        if hasattr(each, "untyped_storage"):
            with contextlib.suppress(RuntimeError, NotImplementedError):
                found.add(each.untyped_storage().data_ptr())
        root: Any = each
        while type(getattr(root, "base", None)) is type(each):
            root = root.base
        found |= {id(each), id(root)}
    return found
