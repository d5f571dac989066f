"""What a profiler window costs the job: how long training stands still, how much longer its steps are.

    python -m benchmarks.cost.window_stall [--windows 5] [--kinds mlp_tiny,cnn]

Each kind trains in this process with several windows of four steps at its boundaries. `stall` is
what switching the profiler on and off takes on the training thread, `write` what writing the trace
takes on another (it holds the GIL), `usual` the same four steps under `torch.profiler.profile`
with its own parsing. Prints a table.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from statistics import median
from types import SimpleNamespace

import torch

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.loop.boundary_task import Boundary
from autobrrr.injected.measure.profiler_window import WindowTask
from autobrrr.records import ProfilerWindow
from autobrrr.sidecar.session.window_reader import read_window, told_window
from benchmarks.cost.sized_models import KINDS

STEPS = 4
MS = 1e6


def window(step: Callable[[], None]) -> ProfilerWindow:
    """Train through one window."""
    hooks = SimpleNamespace(overdue=None)
    loop = SimpleNamespace(hooks=hooks, hot=SimpleNamespace(owner=threading.get_ident()), torch=torch)
    events: list[dict[str, object]] = []
    task = WindowTask(loop, STEPS, False, events.append)  # type: ignore[arg-type]
    job, flags, seq, again = Job(torch), 0, 0, 1
    while again is not None:
        began = time.perf_counter_ns()
        step()
        ended = time.perf_counter_ns()
        boundary = Boundary(job=job, seq=seq, now_ns=ended, last_step_ns=ended - began, last_flags=flags)
        again = task.at_boundary(boundary)
        flags, seq = boundary.mark, seq + 1
    event, fd = events[0]["finish"]()  # type: ignore[operator]
    return read_window(told_window(event), fd)


def usual_ns(step: Callable[[], None]) -> int:
    """What `torch.profiler.profile` takes beyond the steps themselves."""
    began = time.perf_counter_ns()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        first = time.perf_counter_ns()
        for _ in range(STEPS + 1):
            step()
        last = time.perf_counter_ns()
    profile.events()
    return time.perf_counter_ns() - began - (last - first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--kinds", default=",".join(KINDS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'kind':<18}{'step':>8}{'profiled':>10}{'stall':>8}{'write':>8}{'usual':>8}   (ms, medians)")
    for name in args.kinds.split(","):
        make, batch = KINDS[name]
        torch.manual_seed(0)
        step = make(batch)
        for _ in range(20):
            step()
        seen = [window(step) for _ in range(args.windows)]
        plain = median([ns for each in seen for ns in each.plain_step_ns])
        profiled = median([ns for each in seen for ns in each.profiled_step_ns])
        stall = median([each.stall_ns or 0 for each in seen])
        write = median([each.write_ns or 0 for each in seen])
        usual = median([usual_ns(step) for _ in range(args.windows)])
        print(
            f"{name:<18}{plain / MS:>8.2f}{profiled / plain:>9.2f}x{stall / MS:>8.1f}{write / MS:>8.1f}"
            f"{usual / MS:>8.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
