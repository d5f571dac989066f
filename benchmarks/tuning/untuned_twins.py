"""How much a job does in its worst five minutes of a tuning, against a twin that nobody tunes.

Simulated jobs with remedies that help, hurt, or do nothing, and a compilation that is predicted within 10 %.
The tuner goes with `--max-loss 2%`: each job should do 0.98 of its twin's steps. Prints a line for each.
"""

import argparse

import msgspec
import numpy as np

from autobrrr.records import Verdict
from autobrrr.tuner.live_search import tune
from autobrrr.tuner.tuning_budget import WINDOW_NS, TuneSettings
from support.simulated.tuner import Effect, SimulatedJob, verdict

SECOND_NS = 1_000_000_000
PREDICTED = 0.7  # of the jobs
MISS = 0.1  # standard deviation of the log of what is predicted


def case(seed: int) -> tuple[SimulatedJob, SimulatedJob, Verdict | None]:
    """A job, its twin, and what is predicted."""
    draw = np.random.default_rng(seed)
    compiled = float(draw.choice([0.9, 1.0, 1.1, 1.5]))
    effects = {
        "optimizer.fused": Effect(speed=float(draw.choice([1.0, 1.0, 1.05, 1.3]))),
        "optimizer.foreach": Effect(speed=float(draw.choice([1.0, 0.9, 1.02]))),
        "compile.default": Effect(speed=compiled, warm_up_ns=int(draw.uniform(10, 40) * SECOND_NS)),
        "compile.regional": Effect(warm_up_ns=int(draw.uniform(5, 20) * SECOND_NS)),
    }
    for count in (1, 2, 4):
        speed = float(draw.choice([0.35, 0.6, 0.95, 1.0, 1.2]))
        effects[f"threads.intra_op(threads={count})"] = Effect(speed=speed)
    base_ns = float(draw.choice([1e6, 5e6, 2e7, 1e8, 4e8, 1.5e9]))
    job, twin = (SimulatedJob(effects=effects, seed=seed, base_ns=base_ns, cores=4) for _ in range(2))
    if draw.random() > PREDICTED:
        return job, twin, None
    factor = compiled * float(np.exp(draw.normal(0, MISS)))
    told = verdict(compile_default=factor)
    bounds = [factor * float(np.exp(sign * 2 * MISS)) for sign in (-1, 1)]
    return (
        job,
        twin,
        msgspec.structs.replace(
            told, advice=[msgspec.structs.replace(each, interval=bounds) for each in told.advice]
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--for-s", type=int, default=60)
    args = parser.parse_args()
    worst = []
    for seed in range(args.jobs):
        job, twin, told = case(seed)
        found = tune(job, verdict=told, settings=TuneSettings(budget_ns=args.for_s * SECOND_NS))
        tuned_ns = job.now_ns()
        ends = [
            each.steps(0, 1 << 30, tuned_ns + WINDOW_NS - each.now_ns())["end_ns"] for each in (job, twin)
        ]
        begins = np.arange(0, tuned_ns, SECOND_NS)
        done = [np.searchsorted(each, begins + WINDOW_NS) - np.searchsorted(each, begins) for each in ends]
        worst.append(float((done[0] / done[1]).min()))
        print(
            f"{seed:3d} {job.base_ns / 1e6:7.1f} ms {worst[-1]:.3f} {found.speedup:.2f} {found.kept}",
            flush=True,
        )
    print(f"0.98 or more: {sum(each >= 0.98 for each in worst)} of {len(worst)}")


if __name__ == "__main__":
    main()
