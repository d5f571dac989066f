"""The ranks of a launcher, and one piece of work done to all of them at once.

`attach`, `diagnose` and `detach` take all ranks of a launcher on this machine; each has its own session. If
one fails the others stand, and it is said.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from autobrrr.attach import job_roles
from autobrrr.cli import shown
from autobrrr.cli.narration import NARRATOR, narrate
from autobrrr.client.session_client import Client, join_or_start
from autobrrr.errors import AutobrrrError
from autobrrr.records import RankLine
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.sockets.session_socket import connect, find_target

MOST_ENTERED_AT_ONCE = 4

T = TypeVar("T")
_ENTERING = threading.Semaphore(MOST_ENTERED_AT_ONCE)


def ranks_of(pid: int) -> list[int]:
    """The processes of a launcher's ranks, by rank; none where the process trains by itself.

    Raises:
        TargetGone: there is no such process.
    """
    link = connect(find_target(pid))
    if link is not None:  # what has a session is no launcher
        link.close()
        return []
    found = job_roles.launched_ranks(pid)
    if found:
        narrate(f"process {pid} launches {', '.join(named(each) for each in found)}")
    return found


def named(pid: int) -> str:
    """ "rank 1 (pid 123)"."""
    rank = job_roles.rank_of(pid)
    return f"pid {pid}" if rank is None else f"rank {rank} (pid {pid})"


def say_of(pid: int) -> Callable[[str], None]:
    """Narration of one rank among several."""
    name = named(pid)
    return lambda text: narrate(f"{name}: {text}")


def doing_of(pid: int) -> Callable[[str, float | None], None]:
    """The status of one rank among several."""
    name = named(pid)
    return lambda text, left_s: NARRATOR.status(f"{name}: {text}", left_s)


def enter(
    pid: int,
    options: SessionOptions,
    say: Callable[[str], None],
    *,
    foreground: bool = False,
    owned: bool = False,
) -> Client:
    """The session of one of several ranks; few are entered at a time. The arguments are `join_or_start`'s.

    Raises:
        AutobrrrError: it could not be entered.
    """
    with _ENTERING:
        return join_or_start(pid, options, foreground=foreground, owned=owned, on_wait=say)


@dataclass(slots=True, kw_only=True)
class RanksOutcome(Generic[T]):
    """What came of the work, by pid."""

    done: dict[int, T] = field(default_factory=dict)
    failed: dict[int, AutobrrrError] = field(default_factory=dict)

    @property
    def missing(self) -> list[RankLine]:
        """The ranks that failed, with their reasons."""
        return [
            RankLine(rank=job_roles.rank_of(pid), pid=pid, why=error.message)
            for pid, error in self.failed.items()
        ]

    def exit_code(self, otherwise: int) -> int:
        """That of the first rank that failed; all are worth one that is missing."""
        return next((error.exit_code for error in self.failed.values()), otherwise)

    def say_failures(self) -> None:
        """What happened to each rank that failed, and what to do about it.

        Raises:
            AutobrrrError: all have.
        """
        if not self.done:
            raise next(iter(self.failed.values()))
        for pid, error in self.failed.items():
            print(shown(error, named(pid)), file=sys.stderr, flush=True)


def for_each(pids: Sequence[int], work: Callable[[int], T], *, at_once: bool = True) -> RanksOutcome[T]:
    """Do the work to every rank.

    Args:
        at_once: On a thread for each; else here, one after the other.
    """
    done: dict[int, T] = {}
    failed: dict[int, AutobrrrError] = {}
    broken: list[Exception] = []

    def do(pid: int) -> None:
        try:
            done[pid] = work(pid)
        except AutobrrrError as error:
            failed[pid] = error
        except Exception as error:  # noqa: BLE001 - raised again below, on the thread that asked
            broken.append(error)

    # Daemons: Ctrl-C ends the program at once, and with it the sessions that it owns.
    threads = [threading.Thread(target=do, args=(pid,), daemon=True) for pid in pids] if at_once else []
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not at_once:
        for pid in pids:
            do(pid)
    if broken:
        raise broken[0]
    return RanksOutcome(done=_in_order(done, pids), failed=_in_order(failed, pids))


def _in_order(found: Mapping[int, T], pids: Sequence[int]) -> dict[int, T]:
    return {pid: found[pid] for pid in pids if pid in found}
