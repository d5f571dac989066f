"""What is said of the ranks of a launcher: which there are, what happens to each, which of them failed."""

from __future__ import annotations

from collections.abc import Callable

from autobrrr.attach import job_roles
from autobrrr.cli import shown
from autobrrr.cli.narration import NARRATOR, narrate
from autobrrr.client.each_rank import RanksOutcome, T, launched_by


def ranks_of(pid: int) -> list[int]:
    """The processes of a launcher's ranks, by rank; none where the process trains by itself.

    Raises:
        TargetGone: there is no such process.
    """
    found = launched_by(pid)
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


def say_failures(outcome: RanksOutcome[T]) -> None:
    """What happened to each rank that failed, and what to do about it.

    Raises:
        AutobrrrError: all have.
    """
    outcome.refuse_none()
    for pid, error in outcome.failed.items():
        NARRATOR.fault(shown(error, named(pid)))
