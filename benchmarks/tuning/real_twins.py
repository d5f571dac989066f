"""What a tuning costs a job: the steps of its first minutes against those of a twin that nobody tunes.

    python -m benchmarks.tuning.real_twins [--for 45] [--seconds 100] [--case NAME]…

The twin runs before and after, for a fifth of the time each. `lost` is time: that of the steps which are
missing, at the twin's pace; below 0: the job did more. `--max-loss 2%` allows 6 s in any five minutes.
"""

import argparse

from benchmarks.planted.case import Case
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
SOME = (
    "many-small-adamw", "tiny-recurrence", "deep-tiny-mlp", "tiny-transformer", "tiny-gan", "slow-items",
    "heavy-augmentation", "layer-norms", "few-huge-adamw", "numpy-ranking", "wide-mlp",
    "threads-oversubscribed",
)  # fmt: skip


def steps(
    case: Case, seconds: float, environment: dict[str, str], for_s: float = 0.0
) -> tuple[int, list[str]]:
    """Steps that a job makes in so much time, tuned for `for_s` of it, and what stayed on.

    Raises:
        JobFailed: it ended early, or could not be tuned.
    """
    kept: list[str] = []
    with PlantedJob(case, environment=environment, over={"seconds": seconds}) as job:
        job.wait_for_training()
        if for_s:
            kept = product(environment, "tune", str(job.pid), "--for", f"{for_s:g}s")["kept"]
        job.finish(seconds + 60)
        return job.steps, kept


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--for", dest="for_s", type=float, default=45.0)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--case", action="append", choices=list(JOBS))
    args = parser.parse_args()
    adopt_orphans()
    print(f"{'job':<26}{'twin':>10}{'tuned':>10}{'lost':>9}  kept")
    for name in args.case or SOME:
        meter = LoadMeter()
        with own_folders() as environment:
            try:
                before, _ = steps(JOBS[name], args.seconds / 5, environment)
                tuned, kept = steps(JOBS[name], args.seconds, environment, args.for_s)
                after, _ = steps(JOBS[name], args.seconds / 5, environment)
            except JobFailed as failed:
                print(f"{name:<26}failed: {failed}", flush=True)
                continue
            finally:
                end_descendants()
        pace = (before + after) / (2 * args.seconds / 5)
        lost_s = args.seconds - tuned / pace
        beyond = " MORE THAN ALLOWED" if lost_s > ALLOWED_S else ""
        row = f"{name:<26}{pace:>8.1f}/s{tuned / args.seconds:>8.1f}/s{lost_s:>7.1f} s"
        load = f"{meter.read().foreign_cores:.1f} cores of others"
        print(f"{row}  {', '.join(kept) or '-'} ({load}){beyond}", flush=True)


if __name__ == "__main__":
    main()
