"""`autobrrr analyze`: where the time of a torch.profiler trace went; one file or many ranks."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from autobrrr.cli.printed import NARRATOR, check_places, deliver, narrate
from autobrrr.cli.verb_arguments import flag
from autobrrr.errors import UsageError

if TYPE_CHECKING:  # numpy and msgspec are not for --help
    from autobrrr.trace.device.device_work import DeviceWork
    from autobrrr.trace.reading.trace_columns import Trace
    from autobrrr.trace.reading.trace_source import TraceFile
    from autobrrr.trace.step_view import GapLane, StepView
    from autobrrr.trace.trace_records import TraceAnalysis


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces",
        nargs="+",
        metavar="TRACE",
        help="a torch.profiler trace (.json or .json.gz), a folder of traces, or - for standard input",
    )
    flag(parser, "--diff TRACE", "compare with this trace, taken later")
    flag(parser, "--json", "print one JSON object")
    flag(parser, "--html FILE", "write a report page: one file, no network")
    lane = "write the trace with a lane that explains each gap, for ui.perfetto.dev"
    flag(parser, "--perfetto FILE", lane)


def run(args: argparse.Namespace) -> int:
    from autobrrr.report.pages.trace_page import trace_page
    from autobrrr.trace.reading.trace_source import STANDARD_INPUT, named_traces
    from autobrrr.trace.step_view import gap_lane, step_view
    from autobrrr.trace.timeline.trace_steps import find_steps
    from autobrrr.trace.trace_analysis import analyse

    sources = named_traces(args.traces)
    if args.diff:
        return _compare(args, sources)
    if args.perfetto and len(sources) > 1:
        raise UsageError("--perfetto takes one trace", "name the trace of one rank")
    if args.perfetto and sources[0].name == STANDARD_INPUT:
        raise UsageError(
            "--perfetto reads its input twice; standard input can be read only once", "name a file"
        )
    check_places(args.html, args.perfetto)
    views: dict[str, list[StepView]] = {}
    gaps: list[GapLane] = []

    def see(trace: Trace, devices: list[DeviceWork], found: TraceAnalysis) -> None:
        """Take what the files need of a trace, while it is there."""
        if args.html:
            marks = find_steps(trace)
            views[found.file] = [step_view(device, marks) for device in devices]
        if args.perfetto:
            gaps[:] = [gap_lane(device) for device in devices]

    told = {"say": NARRATOR.status} if len(sources) > 1 else {}  # one file is read at once
    analysis = analyse(sources, see if args.html or args.perfetto else None, **told)
    if args.perfetto:
        from autobrrr.report import perfetto_export

        perfetto_export.write(args.perfetto, sources[0], gaps)
        narrate(f"wrote {args.perfetto}: open it at ui.perfetto.dev")
    deliver(args, analysis, trace_page(analysis, {}), trace_page(analysis, views))
    if not args.html and not args.json:
        NARRATOR.next_step(f"autobrrr analyze {shlex.join(args.traces)} --html trace.html   (the timeline)")
    return 0


def _compare(args: argparse.Namespace, sources: list[TraceFile]) -> int:
    from autobrrr.report.pages.side_by_side import compare_traces, comparison_page
    from autobrrr.trace.reading.trace_source import named_traces
    from autobrrr.trace.trace_analysis import analyse

    if args.perfetto:
        raise UsageError("--perfetto takes one trace", "leave out --diff")
    check_places(args.html)
    found = compare_traces(*(analyse(each) for each in (sources, named_traces([args.diff]))))
    deliver(args, found, comparison_page(found))
    return 0
