"""Does a job run after `detach` as it ran before, and as one never attached?

    python -m benchmarks.attach.after_detach [--threads N] [--only REMEDY]… [--jobs KIND]…
        [--blocks N] [--block-s S]

Every remedy that can be applied to a running job on a CPU, on twelve planted jobs. Two processes of one
job take turns on the same cores, block by block; in one of them the remedy is switched on and off three
times, and undone as at the end of a session. Ratio: how much longer (in wall time, in CPU time) its steps
are than the twin's after, over the same before; 95 % interval from the blocks. The heap's limits are fixed:
glibc moves them while a job runs. Rows are appended to `results/after-detach.jsonl`, and what stands there
is not measured again. What can be counted (hooks, threads, files) is in `contract/test_visible_state.py`.
"""

import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

import numpy as np
from scipy import stats

from autobrrr.agent.remedies.families import REGISTRY
from benchmarks import ROOT, parser
from benchmarks.planted.held_out import HELD_OUT
from benchmarks.planted.results import append, read
from benchmarks.planted.stepped import SteppedJob
from benchmarks.planted.tables.cases import CASES

RESULTS = ROOT / "benchmarks" / "results" / "after-detach.jsonl"
OPTIONS: dict[str, dict[str, object]] = {
    "threads.intra_op": {"threads": 2},
    "attention.sdpa": {"kernel": "math"},
    "loader.workers": {"workers": 2},
}
JOBS = {case.name: case for case in (*CASES, *HELD_OUT)}
USUAL = (
    *("deep-tiny-mlp", "wide-mlp", "convolutions", "pointwise-8-mib", "above-mmap-threshold", "layer-norms"),
    *("wide-transformer", "small-lstm", "dense-embedding-sgd", "parsing-items", "parsing-items-1-worker"),
    "length-buckets",  # no batch is as long as another
)
SETTLE_STEPS = 6
CYCLES = 3
WITHIN = 0.02
FIXED_HEAP = {**os.environ, **{f"MALLOC_{name}_THRESHOLD_": str(1 << 30) for name in ("MMAP", "TRIM")}}
CALM = 1.2  # load of a core up to which times are compared: the benchmark alone makes 1.0 at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One remedy on one job."""

    remedy: str
    job: str
    threads: int
    load: float | None = None  # of the machine by all programs, mean of a minute, of one core
    refused: str | None = None
    step_ms: float = 0.0
    wall: tuple[float, float, float] | None = None  # ratio, and its interval
    cpu: tuple[float, float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Neighbouring blocks of both: log-ratio of their median steps."""

    wall: list[float]
    cpu: list[float]


def blocks(touched: SteppedJob, twin: SteppedJob, count: int, steps: int) -> Blocks:
    """Both in turn, and the first of the next pair is who was second."""
    mine, others = [], []
    for number in range(count):
        order = [(touched, mine), (twin, others)]
        for process, found in order if number % 2 else reversed(order):
            found.append(process.steps(steps))

    def ratios(clock: str) -> list[float]:
        pairs = zip(mine, others, strict=True)
        return [math.log(statistics.median(a[clock]) / statistics.median(b[clock])) for a, b in pairs]

    return Blocks(wall=ratios("wall_ns"), cpu=ratios("cpu_ns"))


def ratio(before: Sequence[float], after: Sequence[float]) -> tuple[float, float, float]:
    """exp of the difference of means, with Welch's 95 % interval."""
    found = stats.ttest_ind(after, before, equal_var=False).confidence_interval(0.95)
    middle = float(np.mean(after) - np.mean(before))
    return math.exp(middle), math.exp(float(found.low)), math.exp(float(found.high))


def measured(remedy: str, job: str, threads: int, count: int, block_s: float) -> Row:
    """One row."""
    touched, twin = (SteppedJob(JOBS[job], FIXED_HEAP, {"threads": threads}) for _ in range(2))
    with touched, twin:
        for process in (touched, twin):
            process.steps(20)
        step_ns = statistics.median(touched.steps(10)["wall_ns"])
        twin.steps(10)
        steps = max(4, min(200, round(block_s * 1e9 / step_ns)))
        before = blocks(touched, twin, count, steps)
        for _ in range(CYCLES):
            refused = touched.ask(apply=remedy, options=OPTIONS.get(remedy, {}))
            if refused is not None:
                return Row(remedy=remedy, job=job, threads=threads, refused=str(refused))
            for process in (touched, twin):
                process.steps(SETTLE_STEPS + steps)
            touched.ask(undo=True)
            for process in (touched, twin):
                process.steps(SETTLE_STEPS)
        after = blocks(touched, twin, count, steps)
    return Row(
        remedy=remedy,
        job=job,
        threads=threads,
        load=os.getloadavg()[0] / (os.cpu_count() or 1),
        step_ms=step_ns / 1e6,
        wall=ratio(before.wall, after.wall),
        cpu=ratio(before.cpu, after.cpu),
    )


def said(found: Sequence[float] | None) -> str:
    return "" if found is None else f"{found[0]:.3f} [{found[1]:.3f}, {found[2]:.3f}]"


def verdict(row: Row) -> str:
    """Where the interval of the CPU time lies: inside 1.00 ± 0.02, outside, or wider than it."""
    found = row.cpu
    if found is None or (row.load is not None and row.load > CALM):
        return "" if found is None else "disturbed"
    low, high = 1 - WITHIN, 1 + WITHIN
    if low <= found[1] and found[2] <= high:
        return "within"
    return "outside" if found[1] > high or found[2] < low else "undecided"


def table(rows: Sequence[Row]) -> str:
    """How many of all, and one line for each."""
    ran = [row for row in rows if row.refused is None]
    counts = [verdict(row) for row in ran]
    lines = [f"{each}: {counts.count(each)} of {len(counts)}" for each in sorted(set(counts))]
    for row, found in zip(ran, counts, strict=True):
        lines.append(
            f"{row.remedy:<28}{row.job:<16}{row.threads} {row.step_ms:>7.1f} ms  CPU {said(row.cpu)} {found}"
            f"  wall {said(row.wall)}"
        )
    return "\n".join(lines)


def main() -> None:
    flags = parser(__doc__)
    flags.add_argument("--threads", type=int, default=1)
    flags.add_argument("--only", action="append")
    flags.add_argument("--jobs", action="append", choices=list(JOBS))
    flags.add_argument("--blocks", type=int, default=6)
    flags.add_argument("--block-s", type=float, default=0.2)
    args = flags.parse_args()
    live = [name for name, each in REGISTRY.items() if each.reach != "relaunch" and "cuda" not in each.needs]
    known = {each.name for each in fields(Row)}
    rows = [Row(**{key: value for key, value in each.items() if key in known}) for each in read(RESULTS)]
    done = {(row.remedy, row.job, row.threads) for row in rows}
    for remedy in args.only or live:
        for job in args.jobs or USUAL:
            if (remedy, job, args.threads) in done:
                continue
            row = measured(remedy, job, args.threads, args.blocks, args.block_s)
            rows.append(row)
            append(RESULTS, asdict(row))
            print(remedy, job, row.refused or f"cpu {said(row.cpu)}", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
