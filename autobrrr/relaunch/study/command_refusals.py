"""Commands that no study can be made of, told in one error each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autobrrr.errors import EXIT_FAILED, EXIT_USAGE, AutobrrrError, UsageError
from autobrrr.quantities import size
from autobrrr.recipe import script_of, unreached
from autobrrr.relaunch.trial.trial_endings import Kind, TrialEnding

ROOM = 1.25  # times what the baseline takes must be left for a candidate
USAGE_ENDINGS = ("refused_flag", "asks", "no_start")
HINTS: dict[Kind, str] = {
    "asks": "pass the answers as flags",
    "background": "start it in the foreground",
    "disk_full": "trials write into memory; --allow-writes runs them without the sandbox",
    "no_permission": "the sandbox limits where trials write; --allow-writes runs them without it",
    "no_steps": "a step is a call of a torch optimizer; does the script train that soon?",
    "not_applied": "every remedy is to be on: leave this one out of the recipe",
    "oom": "make it smaller for the study",
    "port_taken": "free the port, or do not name one",
    "too_short": "let it train longer",
}
ELSEWHERE = ("srun",)  # has a daemon start the script: neither walls nor a pause reach that far
INSIDE = "run tune inside the allocation or container, on one node; for several ranks with torchrun"


class Unmeasurable(AutobrrrError):
    """The command as given can't be measured, because of how it ended.

    Args:
        side: Which of several commands it is.
    """

    def __init__(self, ending: TrialEnding, side: str | None = None) -> None:
        self.ending = ending
        self.why = ending.why if side is None else f"{side}: {ending.why}"
        super().__init__(
            f"the command can't be measured: {self.why}",
            HINTS.get(ending.kind, "run it by itself first"),
            exit_code=EXIT_USAGE if ending.kind in USAGE_ENDINGS else EXIT_FAILED,
        )


def refuse_crowding(taken: int | None, free: int | None) -> None:
    """A candidate runs beside the baseline: both must fit into memory, else the kernel kills somebody.

    Args:
        taken: By the baseline itself: what others took meanwhile is no part of it.

    Raises:
        AutobrrrError: they don't.
    """
    if taken is not None and free is not None and free < ROOM * taken:
        raise AutobrrrError(
            f"two copies of the command do not fit into memory: one takes {size(taken)}, "
            f"{size(free)} are free",
            "make it smaller for the study, or tune the running job: autobrrr tune PID",
        )


def refuse_elsewhere(command: Sequence[str]) -> None:
    """A command by whose own words a daemon will start the script, or nobody sees it train.

    Raises:
        UsageError: it is one.
    """
    if (why := unreached(command)) is not None:
        raise UsageError(
            f"{why} to see steps", "leave -E and -I out, and set variables before autobrrr: A=1 autobrrr …"
        )
    script = script_of(command) or "-m"
    before = command[: command.index(script)] if script in command else command[:1]
    found = next((word for word in before if Path(word).name in ELSEWHERE), None)
    if found is not None:
        raise UsageError(
            f"{found}: a daemon starts its processes: they escape the sandbox and can't be suspended", INSIDE
        )
