"""`autobrrr doctor [PID]`: can I attach and measure here? Each check says why, and how to fix it.

With a pid the exit code is that of attaching to it: 0, 3 or 4.
"""

from __future__ import annotations

import argparse
import json

import msgspec

from autobrrr.attach import doctor_checks, door
from autobrrr.cli.printed import NARRATOR, Loudness, narrate, show
from autobrrr.cli.verb_arguments import process_number
from autobrrr.errors import EXIT_CANNOT_ATTACH, EXIT_DONE
from autobrrr.readable import readable
from autobrrr.records import SCHEMA, DoctorCheck
from autobrrr.report.next_step import after_checks

_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=process_number, nargs="?", metavar="PID", help="a process to attach to")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    if args.pid is None:
        checks = doctor_checks.of_machine()
        code = EXIT_CANNOT_ATTACH if any(check.status == "fail" for check in checks) else EXIT_DONE
    else:
        checks, code = doctor_checks.of_process(door.go_through(args.pid, narrate))
    if args.json:
        print(json.dumps({"schema": SCHEMA, "checks": [msgspec.to_builtins(check) for check in checks]}))
        return code
    who = "this machine" if args.pid is None else f"process {args.pid}"
    show(table(checks, who, whole=args.loudness is Loudness.VERBOSE))
    NARRATOR.next_step(after_checks(checks, args.pid))
    return code


def table(checks: list[DoctorCheck], who: str, *, whole: bool) -> str:
    """The checks for people: how it stands with whom; the command that fixes it stands under its check.

    Args:
        whole: Show what is well, too.
    """
    shown = [check for check in checks if whole or check.status != "ok"]
    stands = {check.status for check in checks}
    how = "not ready" if "fail" in stands else "ready, with limits" if "warn" in stands else "ready"
    passed = sum(check.status == "ok" for check in checks)
    lines = [f"{who} is {how}: {passed} of {len(checks)} checks passed{'' if whole else ' (-v lists them)'}"]
    width = max((len(check.name) for check in shown), default=0)
    for check in shown:
        mark = _MARKS[check.status]
        lines.append(f"{mark}  {check.name.ljust(width)}  {readable(check.detail)}")
        if check.fix:
            lines.append(f"      {' ' * width}  -> {readable(check.fix)}")
    return "\n".join(lines)
