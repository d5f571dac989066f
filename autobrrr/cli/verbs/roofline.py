"""`autobrrr roofline`: what this machine can do at best; measured once, then cached."""

from __future__ import annotations

import argparse
import os
import re
import time

from autobrrr import paths
from autobrrr.cli.narration import NARRATOR
from autobrrr.cli.output_file import check_places
from autobrrr.cli.printed import deliver
from autobrrr.errors import EXIT_DONE, UsageError
from autobrrr.quantities import share

DEVICE = re.compile(r"cpu|cuda(:\d+)?")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", metavar="D", help="cpu, cuda or cuda:1 (default: the GPU if there is one)"
    )
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="CPU threads of the second measurement; the first uses one (default: all cores)",
    )
    parser.add_argument("--flame", action="store_true", help="show where the time of one tiny addition goes")
    parser.add_argument("--again", action="store_true", help="measure again, even if results are cached")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--html", metavar="FILE", help="write a page with plots: one file, no network")


def run(args: argparse.Namespace) -> int:
    # Not for --help: they bring msgspec, and that a tenth of a second.
    from autobrrr.report.pages.roofline_page import roofline_page
    from autobrrr.roofline.machine_identity import read_machine
    from autobrrr.roofline.roofline_measure import default_device, roofline
    from autobrrr.roofline.roofline_records import RooflineRequest

    device = args.device or default_device()
    if not DEVICE.fullmatch(device):
        raise UsageError(f"--device {device} is not a device", "write cpu, cuda or cuda:1")
    if args.threads is not None and args.threads < 1:
        raise UsageError(
            f"--threads {args.threads} is too few", "write 1 or more; leave it out for all cores"
        )
    check_places(args.html)
    machine = read_machine()
    most = max(machine.cores, len(os.sched_getaffinity(0)))
    if args.threads is not None and args.threads > most:
        raise UsageError(
            f"--threads {args.threads} is more than the {most} cores of this machine",
            "leave it out for all cores",
        )
    request = RooflineRequest(device=device, threads=args.threads or machine.cores, flame=args.flame)
    found = roofline(request, paths.cache_dir(), machine, _Progress().show, again=args.again)
    deliver(args, found, roofline_page(found))
    if args.json:
        return EXIT_DONE
    again = "autobrrr roofline --again   (on a quiet machine)"
    NARRATOR.next_step(
        again if found.is_disturbed else "autobrrr diagnose PID   (holds a job against these peaks)"
    )
    return EXIT_DONE


class _Progress:
    """Which experiment runs, and how long all of them take at the speed of those that are done."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._began_share = 0.0

    def show(self, title: str, done_share: float) -> None:
        now_s = time.monotonic()
        if self._began_s is None:
            self._began_s, self._began_share = now_s, done_share
        done = done_share - self._began_share
        left_s = (now_s - self._began_s) * (1 - done_share) / done if done > 0 else None
        NARRATOR.status(f"{share(done_share):>6}  {title}", left_s, subject=title)
