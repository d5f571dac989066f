"""What tuning costs a job: its steps are compared with those of an untuned twin that runs at the same time.

    python -m benchmarks.tuning.real_twins [--for 45] [--seconds 75] [--case NAME]… [--untouched]

Each runs on one core, and they swap cores twice a second, so that both meet the same machine. The ratio of
their paces is measured before tuning. `lost` is the time that the missing steps would take at the twin's
pace, and is negative if the job did more steps. Our own processes take CPU time from both alike, so `lost`
is what a job with a core to spare loses; a job without one also loses up to `own CPU`. `--max-loss 2%`
allows 6 s in any five minutes. `--untouched` tunes nothing and shows how far two equal jobs differ.
"""

import argparse
import mmap
import os
import resource
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import psutil

from benchmarks.planted.case import Case, Knob
from benchmarks.planted.diagnosed import SETTLE_S
from benchmarks.planted.job_process import (
    JobFailed,
    PlantedJob,
    adopt_orphans,
    end_descendants,
    own_folders,
    product,
)
from benchmarks.planted.load import LoadMeter
from benchmarks.verdict.predicted_gain import JOBS

ALLOWED_S = 6.0
UNTOUCHED_S = 15.0
SOME = (
    "tiny-recurrence", "python-in-forward", "python-in-backward", "deep-tiny-mlp", "many-small-adamw",
    "many-small-rmsprop", "tiny-gan", "tiny-transformer", "tiny-dlrm", "tiny-with-evaluation", "slow-items",
    "heavy-augmentation", "module-transforms", "environment", "numpy-ranking", "pointwise-8-mib",
    "layer-norms", "few-huge-adamw", "wide-mlp", "convolutions", "small-lstm", "all-pairs-loss",
    "unrolled-cell", "averaged-weights", "layer-wise-rates", "shadow-weights", "replay-buffer",
    "huge-vocabulary", "recomputed-blocks", "depthwise",
)  # fmt: skip


@contextmanager
def counted(case: Case, seconds: float, environment: Mapping[str, str]) -> Iterator[tuple[int, memoryview]]:
    """Run a job; gives its process id and its number of steps so far (one int64)."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(8))
        file.flush()
        over: dict[str, Knob] = {"seconds": seconds, "counted": file.name}
        with (
            PlantedJob(case, environment=environment, over=over) as job,
            mmap.mmap(file.fileno(), 8) as memory,
        ):
            job.wait_for_training()
            with memoryview(memory) as seen, seen.cast("q") as steps:
                yield job.pid, steps


@contextmanager
def swapped(first: int, second: int, every_s: float = 0.5) -> Iterator[None]:
    """Pin two processes, and all below them, to a core each, and swap the cores again and again."""
    ended = threading.Event()

    def swap() -> None:
        core = 0
        while not ended.wait(every_s):
            core = 1 - core
            for pid, on in ((first, core), (second, 1 - core)):
                with suppress(psutil.Error, OSError):
                    top = psutil.Process(pid)
                    for process in (top, *top.children(recursive=True)):
                        for thread in process.threads():
                            os.sched_setaffinity(thread.id, {on})

    worker = threading.Thread(target=swap)
    worker.start()
    try:
        yield
    finally:
        ended.set()
        worker.join()


def own_cpu_s(*jobs: int) -> float:
    """CPU seconds of every process below this one, ended or not, except those of the jobs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    total_s = usage.ru_utime + usage.ru_stime
    theirs = set(jobs)
    for pid in jobs:
        theirs |= {each.pid for each in psutil.Process(pid).children(recursive=True)}
    for each in psutil.Process().children(recursive=True):
        if each.pid not in theirs:
            with suppress(psutil.Error):
                times = each.cpu_times()
                total_s += times.user + times.system + times.children_user + times.children_system
    return total_s


def lost(
    case: Case, for_s: float, seconds: float, environment: Mapping[str, str]
) -> tuple[float, float, float, list[str]]:
    """Seconds lost, our own CPU seconds, the pace at the end over the twin's, and what stayed on.

    Raises:
        JobFailed: one did not train, or could not be tuned.
    """
    life_s = 2 * seconds + 120
    with (
        counted(case, life_s, environment) as (pid, tuned),
        counted(case, life_s, environment) as (twin_pid, twin),
        swapped(pid, twin_pid),
    ):
        time.sleep(SETTLE_S)
        began = tuned[0], twin[0]
        time.sleep(UNTOUCHED_S)
        ratio = (tuned[0] - began[0]) / (twin[0] - began[1])
        began, until, before_s = (tuned[0], twin[0]), time.monotonic() + seconds, own_cpu_s(pid, twin_pid)
        kept = product(environment, "tune", str(pid), "--for", f"{for_s:g}s")["kept"] if for_s else []
        rest = tuned[0], twin[0]
        time.sleep(max(0.0, until - time.monotonic()))
        done, untuned = tuned[0] - began[0], (twin[0] - began[1]) * ratio
        after = (tuned[0] - rest[0]) / max(1.0, (twin[0] - rest[1]) * ratio)
        return seconds * (1 - done / untuned), own_cpu_s(pid, twin_pid) - before_s, after, kept


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--for", dest="for_s", type=float, default=45.0)
    parser.add_argument("--seconds", type=float, default=75.0)
    parser.add_argument("--case", action="append", choices=list(JOBS))
    parser.add_argument("--untouched", action="store_true")
    args = parser.parse_args()
    adopt_orphans()
    print(f"{'job':<26}{'lost':>9}{'own CPU':>9}{'after':>8}  kept")
    for name in args.case or SOME:
        meter = LoadMeter()
        with own_folders() as environment:
            try:
                lost_s, own_s, after, kept = lost(
                    JOBS[name], 0.0 if args.untouched else args.for_s, args.seconds, environment
                )
            except JobFailed as failed:
                print(f"{name:<26}failed: {failed}", flush=True)
                continue
            finally:
                end_descendants()
        beyond = " MORE THAN ALLOWED" if lost_s > ALLOWED_S else ""
        load = f"{meter.read().foreign_cores:.1f} cores of others"
        print(
            f"{name:<26}{lost_s:>7.1f} s{own_s:>7.1f} s{after:>7.2f}x  "
            f"{', '.join(kept) or '-'} ({load}){beyond}",
            flush=True,
        )


if __name__ == "__main__":
    main()
