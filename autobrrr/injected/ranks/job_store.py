"""The store at which the ranks of a job have met, asked by us through a connection of our own.

A call on the job's own connection would keep the job's calls waiting: a connection serves one call at a time.
A server that is stopped answers none. So each question is asked on a thread that is left behind where no
answer comes, and never on the training thread. In: the default process group. Out: what stands at our keys,
of at most 4 KiB each; they are deleted when the agent leaves.

Where the interpreter ends while a thread is inside torch's store, that thread would be unwound through code
that may not be, and the process would abort. So the end waits for a question that is under way, and no other
is asked from then on. A connection gives the GIL back as it goes: that is a question, too.
"""

from __future__ import annotations

import _thread
import os
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from types import ModuleType
from typing import Any, Protocol, TypeVar, cast

from .shared_log import RegisterLost

ANSWER_S = 5.0
LAST_ANSWER_S = 2.0  # when the job ends
CONNECT_S = 3.0
MOST_CONNECTIONS = 3  # one that does not answer leaves a thread behind
MOST_BYTES = 4096
PREFIX = "autobrrr/ranks"
T = TypeVar("T")
_NEVER_HUNG_UP: list[object] = []  # connections that a job's end has come upon


class _Store(Protocol):
    """What is used of torch's store."""

    def check(self, keys: list[str]) -> bool: ...
    def get(self, key: str) -> bytes: ...
    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes: ...
    def delete_key(self, key: str) -> bool: ...


class JobStore:
    """Our keys in it. Every call waits for the store, for some seconds at most; raises RegisterLost.

    Args:
        dial: Makes a connection that nobody else uses; called again where one does not answer.
        generation: Of the job: a launcher that starts its ranks anew may keep the store.
    """

    def __init__(self, dial: Callable[[], _Store], generation: str = "0") -> None:
        self._dial = dial
        self._link: list[_Store] = []  # the connection: nothing of ours holds it but this, and who asks
        self._connections = 0
        self._at_end: weakref.finalize[..., Any] | None = None
        self._prefix = f"{PREFIX}/{generation}/"
        self._put: dict[str, str] = {}
        self._has_left = False
        self._pid = os.getpid()
        self._under_way: set[_thread.LockType] = set()

    def get(self, key: str) -> str | None:
        """What stands at a key; None: nothing, or what is too long to be ours."""
        name = self._prefix + key

        def look(store: _Store) -> bytes:  # `get` would wait for a key that is not there
            return store.get(name) if store.check([name]) else b""

        found = self._ask(look)
        return found.decode(errors="replace") if 0 < len(found) <= MOST_BYTES else None

    def put(self, key: str, value: str, instead_of: str = "", *, stays: bool = False) -> str:
        """What stands at a key, once `value` took the place of that: of nothing, if not said otherwise.

        Args:
            stays: Also when we leave, unless it is deleted.
        """
        if len(value.encode()) > MOST_BYTES:
            raise RegisterLost(f"{key} is larger than {MOST_BYTES} bytes")
        name = self._prefix + key
        standing = self._ask(
            lambda store: store.compare_set(name, instead_of, value).decode(errors="replace")
        )
        if standing == value and not stays:
            self._put[name] = value
        return standing

    def delete(self, keys: Iterable[str]) -> None:
        """Whatever stands there."""
        names = [self._prefix + key for key in keys]

        def delete(store: _Store) -> None:
            for name in names:
                store.delete_key(name)

        self._ask(delete)

    def leave(self) -> None:
        """Delete what we put there and what still stands, and hang up.

        Says nothing where the store has gone: so have the keys.
        """
        put, self._put = self._put, {}

        def delete(store: _Store) -> None:
            for name, value in put.items():
                if store.check([name]) and store.get(name) == value.encode():
                    store.delete_key(name)

        with suppress(RegisterLost):
            if put:
                self._ask(delete)
            self._hang_up(self._link)
        self._end()
        if self._at_end is not None and not self._under_way:
            self._at_end.detach()

    def _end(self) -> None:
        self._has_left = True
        if os.getpid() != self._pid:  # a forked child has none of our threads
            return
        self._link.clear()
        until_s = time.monotonic() + LAST_ANSWER_S
        for over in list(self._under_way):
            if over.acquire(timeout=max(0.0, until_s - time.monotonic())):
                over.release()  # who asked waits for it too

    def _hang_up(self, link: list[_Store]) -> None:
        """Also where it has yet to come about; not of one that another thread has dialled since."""
        if self._link is link:
            self._link = []
        try:
            with suppress(TimeoutError):
                self._within(LAST_ANSWER_S, link.clear)
        except RegisterLost:
            _NEVER_HUNG_UP.append(link)  # else it went with this thread's frames, for which no end waits
            raise

    def _connected(self) -> list[_Store]:
        link = self._link

        def dial() -> None:
            link.append(self._dial())
            if self._link is not link:  # nobody waits for it any more
                link.clear()

        if not link:
            if self._connections >= MOST_CONNECTIONS:
                raise RegisterLost("the job's store does not answer")
            if not self._connections:
                self._at_end = weakref.finalize(self, self._end)  # `atexit` would ask the job's when it goes
            self._connections += 1
            try:
                self._within(2 * CONNECT_S, dial)
            except TimeoutError:
                self._hang_up(link)
                raise RegisterLost("the job's store does not answer") from None
        return link

    def _ask(self, question: Callable[[_Store], T]) -> T:
        link = self._connected()

        def ask() -> T:
            store = next(iter(link), None)
            if store is None:
                raise RegisterLost("another thread has given the job's store up")
            return question(store)

        try:
            return self._within(ANSWER_S, ask)
        except (TimeoutError, RegisterLost) as lost:
            self._hang_up(link)
            if isinstance(lost, RegisterLost):
                raise
            raise RegisterLost(f"the job's store gave no answer in {ANSWER_S:.0f} s") from None

    def _within(self, seconds: float, work: Callable[[], T]) -> T:
        """Do it on a thread of its own, which is left behind where it takes longer.

        Raises:
            TimeoutError: it takes longer.
            RegisterLost: we have left, there is no thread to be had, or torch raised: in torch's words.
        """
        done: list[T] = []
        failed: list[Exception] = []
        over = _thread.allocate_lock()
        over.acquire()

        def run() -> None:
            try:
                done.append(work())
            except Exception as error:  # noqa: BLE001 - raised again below, on the thread that asked
                failed.append(error.with_traceback(None))  # its frames hold the connection
            finally:
                self._under_way.discard(over)
                over.release()

        self._under_way.add(over)
        if self._has_left:  # looked at last: `_end` waits for what it finds under way
            self._under_way.discard(over)
            raise RegisterLost("this rank has left the job's store")
        try:
            _thread.start_new_thread(run, ())
        except RuntimeError as error:
            self._under_way.discard(over)
            raise RegisterLost(f"the job's store: {error}") from None
        if not over.acquire(timeout=seconds):
            raise TimeoutError
        if failed:
            if isinstance(failed[0], RegisterLost):
                raise failed[0]
            first = (str(failed[0]).splitlines() or [""])[0][:120]
            raise RegisterLost(f"the job's store: {type(failed[0]).__name__}: {first}")
        return done[0]


def of_job(torch: ModuleType) -> JobStore:
    """The store of the default process group, to which the first question makes a connection of our own.

    Raises:
        RegisterLost: the job has no process group.
    """
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        raise RegisterLost("the job has no process group")

    def dial() -> _Store:
        store = distributed.distributed_c10d._get_default_store()
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        made = getattr(distributed, "TCPStore", None)
        if made is not None and isinstance(store, made):
            wait = timedelta(seconds=CONNECT_S)
            return cast(
                _Store, made(store.host, store.port, is_master=False, timeout=wait, wait_for_workers=False)
            )
        if hasattr(store, "clone"):
            return cast(_Store, store.clone())
        raise RegisterLost(
            f"the ranks met at a {type(store).__name__}, to which there is no second connection"
        )

    return JobStore(dial, os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
