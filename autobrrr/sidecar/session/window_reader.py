"""Reads a profiler window on a thread of its own, so that the session stays responsive.

In: the agent's event and the trace's open file. Out: a `ProfilerWindow`. What reads traces is
heavy, so it is imported when the first window comes.
"""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable

import msgspec

from autobrrr.errors import AutobrrrError
from autobrrr.records import ProfilerWindow, Verdict, WindowGaps, WindowOp
from autobrrr.sidecar.process.step_replayer import Call
from autobrrr.sidecar.sockets.socket_frames import MOST_FILE_BYTES

TOP_OPS = 40
JUDGED = (  # of an analysis, what a verdict says
    *("regime", "confidence", "reason", "shares", "evidence", "decide_with"),
    *("limit", "limit_confidence", "limit_reason"),
)
OnWindow = Callable[[ProfilerWindow], None]
Read = Callable[[ProfilerWindow, int | None, OnWindow], None]


def window_reader(call: Call) -> Read:
    """Reads each finished window on a thread, and hands it back on the event loop's thread.

    Args:
        call: Runs a function on the event loop's thread.
    """

    def work(told: ProfilerWindow, fd: int | None, done: OnWindow) -> None:
        try:
            found = read_window(told, fd)
        except AutobrrrError as error:
            found = _abstained(f"its trace can't be used: {error.message}")
        except Exception as error:  # noqa: BLE001 - the session must outlive a fault in reading
            traceback.print_exc()
            found = _abstained(f"reading its trace failed: {type(error).__name__}: {error}")
        call(lambda: done(found))

    return lambda *given: threading.Thread(target=work, args=given, name="window", daemon=True).start()


def read_window(told: ProfilerWindow, fd: int | None) -> ProfilerWindow:
    """Fill in what the trace shows; closes `fd`.

    Raises:
        UsageError: the file is no trace.
    """
    if told.status != "ok":
        _close(fd)
        return told
    if fd is None:
        return _abstained("its trace did not come with it")
    from autobrrr.trace.causes.host_thread_time import host_time
    from autobrrr.trace.reading.trace_reader import read_trace
    from autobrrr.trace.reading.trace_source import TraceFile
    from autobrrr.trace.trace_analysis import analyse_trace

    try:
        size = os.fstat(fd).st_size
        if size > MOST_FILE_BYTES:
            return _abstained(f"its trace has {size} bytes")
        trace = read_trace(TraceFile(name="profiler window", path=None, fd=fd, most_bytes=MOST_FILE_BYTES))
    finally:
        _close(fd)
    analysis = analyse_trace(trace)
    if told.device and not analysis.devices:
        return _abstained("the profiler recorded no kernel of the device that the job uses")
    seen = host_time(trace)
    steps = len(told.profiled_step_ns) + 1  # one to settle
    verdict = Verdict(**{name: getattr(analysis, name) for name in JUDGED}) if analysis.devices else None
    return msgspec.structs.replace(
        told,
        operators=seen.calls / steps if seen else None,
        inside_share=seen.inside_share if seen else None,
        compiled_share=seen.compiled_share if seen else None,
        loader_share=seen.loader_share if seen else None,
        by_op=[
            WindowOp(op=each.op, count=each.count / steps, self_ns=each.self_ns / steps)
            for each in (seen.operators[:TOP_OPS] if seen else [])
        ],
        gaps=[
            WindowGaps(
                device=str(each.device),
                span_ns=each.span_ns,
                busy_ns=each.busy_ns,
                idle_by_cause_ns={
                    **each.host_late_by_cause_ns,
                    "in_launch": each.idle.in_launch_ns,
                    "after_launch": each.idle.after_launch_ns,
                    "unmatched": each.idle.unmatched_ns,
                },
            )
            for each in analysis.devices
        ],
        verdict=verdict,
    )


def _close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)


def _abstained(why: str) -> ProfilerWindow:
    return ProfilerWindow(status="abstained", why=why)
