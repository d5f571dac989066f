"""What is said of the ranks of a launcher: which there are, what happens to each, which of them failed."""

from __future__ import annotations

from dataclasses import dataclass

from autobrrr.attach import job_roles
from autobrrr.cli import shown
from autobrrr.cli.printed import NARRATOR, narrate
from autobrrr.client.diagnosing import Doing
from autobrrr.client.each_rank import RanksOutcome, Say, T, launched_by


@dataclass(frozen=True, slots=True)
class JobRanks:
    """The processes of a job: the ranks of a launcher, by rank, or the one that trains by itself."""

    pids: list[int]
    launched: bool

    def say(self, pid: int) -> Say:
        """Narration of one of them: among several, with its name."""
        return (lambda text: narrate(f"{named(pid)}: {text}")) if self.launched else narrate

    def doing(self, pid: int) -> Doing:
        """The status of one of them."""
        name = f"{named(pid)}: " if self.launched else ""
        return lambda text, left_s: NARRATOR.status(f"{name}{text}", left_s)


def ranks_of(pid: int) -> JobRanks:
    """The ranks that a process launches, or the process.

    Raises:
        TargetGone: there is no such process.
    """
    found = launched_by(pid)
    if found:
        narrate(f"process {pid} launches {', '.join(named(each) for each in found)}")
    return JobRanks(found or [pid], bool(found))


def named(pid: int) -> str:
    """ "rank 1 (pid 123)"."""
    rank = job_roles.rank_of(pid)
    return f"pid {pid}" if rank is None else f"rank {rank} (pid {pid})"


def say_failures(outcome: RanksOutcome[T]) -> None:
    """What happened to each rank that failed, and what to do about it.

    Raises:
        AutobrrrError: all have.
    """
    outcome.refuse_none()
    for pid, error in outcome.failed.items():
        NARRATOR.fault(shown(error, named(pid)))
