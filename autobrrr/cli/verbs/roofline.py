"""`autobrrr roofline`: what this machine can do at best; measured once, then cached."""

from __future__ import annotations

import argparse
import os
import re

from autobrrr import paths
from autobrrr.cli.printed import NARRATOR, check_places, deliver
from autobrrr.cli.verb_arguments import flag
from autobrrr.errors import EXIT_DONE, UsageError
from autobrrr.quantities import share

DEVICE = re.compile(r"cpu|cuda(:\d+)?")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", metavar="D", help="cpu, cuda or cuda:1 (default: the GPU if there is one)"
    )
    flag(
        parser,
        "--threads N",
        "CPU threads of the second measurement; the first uses one (default: all cores)",
    )
    flag(parser, "--flame", "show where the time of one tiny addition goes")
    flag(parser, "--again", "measure again, even if results are cached")
    flag(parser, "--json", "print one JSON object")
    flag(parser, "--html FILE", "write a page with plots: one file, no network")


def run(args: argparse.Namespace) -> int:
    # Not for --help: they bring msgspec, and that a tenth of a second.
    from autobrrr.report.pages.roofline_page import roofline_page
    from autobrrr.roofline.machine_identity import read_machine
    from autobrrr.roofline.roofline_measure import default_device, roofline
    from autobrrr.roofline.roofline_records import RooflineRequest

    device = args.device or default_device()
    if not DEVICE.fullmatch(device):
        raise UsageError(f"--device {device} is not a device", "write cpu, cuda or cuda:1")
    check_places(args.html)
    machine = read_machine()
    most = max(machine.cores, len(os.sched_getaffinity(0)))
    if args.threads is not None and not 1 <= args.threads <= most:
        why = f"--threads {args.threads} is not from 1 to {most}, the cores of this machine"
        raise UsageError(why, "leave it out for all cores")
    request = RooflineRequest(device=device, threads=args.threads or machine.cores)
    found = roofline(request, paths.cache_dir(), machine, _progress, again=args.again, flame=args.flame)
    deliver(args, found, roofline_page(found))
    if args.json:
        return EXIT_DONE
    again = "autobrrr roofline --again   (on a quiet machine)"
    NARRATOR.next_step(
        again if found.is_disturbed else "autobrrr diagnose PID   (holds a job against these peaks)"
    )
    return EXIT_DONE


def _progress(title: str, done_share: float) -> None:
    NARRATOR.status(f"{share(done_share):>6}  {title}", subject=title)
