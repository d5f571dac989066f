"""`autobrrr doctor [PID]`: can I attach and measure here? Each check says why, and how to fix it.

With a pid the exit code is that of attaching to it: 0, 3 or 4.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

import msgspec

from autobrrr.attach import doctor_checks
from autobrrr.cli.verb_arguments import process_number
from autobrrr.errors import EXIT_CANNOT_ATTACH, EXIT_DONE
from autobrrr.readable import readable
from autobrrr.records import SCHEMA, DoctorCheck

_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
_COLOURS = {"ok": "32", "warn": "33", "fail": "31"}


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=process_number, nargs="?", metavar="PID", help="a process to attach to")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    if args.pid is None:
        checks = doctor_checks.of_machine()
        code = EXIT_CANNOT_ATTACH if any(check.status == "fail" for check in checks) else EXIT_DONE
    else:
        checks, code = doctor_checks.of_process(args.pid)
    if args.json:
        print(json.dumps({"schema": SCHEMA, "checks": [msgspec.to_builtins(check) for check in checks]}))
    else:
        print(table(checks, coloured=sys.stdout.isatty() and "NO_COLOR" not in os.environ))
    return code


def table(checks: list[DoctorCheck], *, coloured: bool) -> str:
    """The checks for people; the command that fixes it stands under its check."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        mark = _MARKS[check.status]
        if coloured:
            mark = f"\033[{_COLOURS[check.status]}m{mark}\033[0m"
        lines.append(f"{mark}  {check.name.ljust(width)}  {readable(check.detail)}")
        if check.fix:
            lines.append(f"      {' ' * width}  -> {readable(check.fix)}")
    return "\n".join(lines)
