"""`autobrrr detach`: end the session of a job; undo what it switched, take everything off.

Of a launcher, the sessions of all its ranks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from autobrrr.attach import door
from autobrrr.cli.launcher_ranks import ranks_of, say_failures
from autobrrr.cli.printed import NARRATOR, narrate
from autobrrr.cli.verb_arguments import process_number
from autobrrr.client.each_rank import for_each
from autobrrr.client.session_client import join_under_way, lost_log_lines
from autobrrr.errors import EXIT_DONE, AutobrrrError
from autobrrr.machine import procfs
from autobrrr.records.session_requests import TakeSnapshot
from autobrrr.sidecar.sockets.session_socket import find_target, is_under_way, passed_over


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=process_number, metavar="PID", help="the training process")
    parser.add_argument("--keep", action="store_true", help="leave accepted remedies applied")


def run(args: argparse.Namespace) -> int:
    ranks = ranks_of(door.go_through(args.pid, narrate))
    if not ranks.launched:
        if _detach(args.pid, args.keep, narrate):
            NARRATOR.next_step(f"autobrrr report {args.pid}   (shows what the session found)")
        return EXIT_DONE
    attached = [pid for pid in ranks.pids if is_under_way(find_target(pid))]
    if not attached:
        why = f"none of the ranks of process {args.pid} has a session"
        raise AutobrrrError(why, "autobrrr ls lists those that have one")
    outcome = for_each(attached, lambda pid: _detach(pid, args.keep, ranks.say(pid)))
    say_failures(outcome)
    return outcome.exit_code(EXIT_DONE)


def _detach(pid: int, keep: bool, say: Callable[[str], None]) -> bool:
    """End the session; whether there was one."""
    waited: list[str] = []

    def wait(line: str) -> None:
        waited.append(line)
        say(line)

    client = join_under_way(pid, on_wait=wait)
    if client is None and waited:
        say(f"the command that was attaching to process {pid} has ended without a session: nothing to detach")
        return False
    if client is None:
        others = "".join(f"; {line}" for line in passed_over())
        raise AutobrrrError(f"process {pid} has no session{others}", "autobrrr ls lists those that have one")
    with client:
        active = client.ask(TakeSnapshot()).active
        left = client.detach(keep=keep)
    if left.left:
        names, seen = ", ".join(left.left), procfs.stat(pid)
        stopped = f": it is stopped, kill -CONT {pid}" if seen is not None and seen.state == "T" else ""
        if any(name == "the agent" or name.endswith("(undone at the next step)") for name in left.left):
            then = f"it goes at the job's next step{stopped}"
        else:
            then = "the job has put its own over it: it stays, and only passes calls on"
        raise AutobrrrError(f"could not be removed from process {pid}: {names}", f"{left.why}; {then}")
    if left.kind == "job ended":
        say(f"{left.why}, and so has its session")
    elif left.stays:
        say(f"detached; all ranks keep {', '.join(left.stays)}: they could not revert it at one step")
    else:
        off = [remedy for remedy in active if remedy not in left.on]
        parts = {"still applied": left.on, "reverted": off}
        told = [f"{word}: {', '.join(remedies)}" for word, remedies in parts.items() if remedies]
        say(f"detached; {'; '.join(told) or 'no remedy was on'}")
    if left.lost_lines:
        say(lost_log_lines(left.lost_lines))
    return True
