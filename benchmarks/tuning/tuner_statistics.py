"""How often the tuner keeps what does nothing, and how many steps it needs to see what does something.

Whole comparisons with the product's own blocks, interval and stop rule on a simulated job: 5 % noise
with lag-one correlation 0.5, 6 % drift, slow steps, evaluations, checkpoints. Prints two tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from autobrrr.tuner.arm_switch import ArmSwitch
from autobrrr.tuner.candidate_space import Choice
from autobrrr.tuner.comparison import Comparing, Comparison, compare
from autobrrr.tuner.stop_rules import proof
from support.simulated.tuner import Effect, SimulatedJob

ALPHA = 0.02
WORTHWHILE = 0.01
MINUTES_NS = 60_000_000_000
CHOICE = Choice(remedy="optimizer.fused")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of simulated job."""

    name: str
    base_ns: float = 1_000_000.0
    cling: float = 0.5
    slow_share: float = 0.005
    drift_steps: int = 2000


KINDS = (
    Kind(name="1 ms steps"),
    Kind(name="0.2 ms steps", base_ns=200_000.0),
    Kind(name="20 ms steps", base_ns=20_000_000.0),
    Kind(name="noise clings (0.9)", cling=0.9),
    Kind(name="2 % slow steps", slow_share=0.02),
    Kind(name="drift in 300 steps", drift_steps=300),
    Kind(name="drift in 120 steps", drift_steps=120),
)


def run(kind: Kind, speed: float, seed: int, budget_ns: int) -> Comparison:
    """One comparison, from its start to its decision."""
    job = SimulatedJob(
        effects={CHOICE.remedy: Effect(speed=speed)},
        seed=seed,
        base_ns=kind.base_ns,
        cling=kind.cling,
        slow_share=kind.slow_share,
        drift_steps=kind.drift_steps,
    )
    return compare(
        job,
        ArmSwitch(job, ("bitwise", "rounding")),
        Comparing(
            without=(),
            with_it=(CHOICE,),
            rule=proof(WORTHWHILE, 30 * MINUTES_NS, rare=False),
            alpha=ALPHA,
            deadline_ns=job.now_ns() + budget_ns,
            step_ns=kind.base_ns,
            seed=seed,
        ),
    )


def share(found: Iterable[Comparison], decision: str) -> float:
    return float(np.mean([each.decision == decision for each in found]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=400, help="runs for each line of A/A (default 400)")
    parser.add_argument("--power-runs", type=int, default=100)
    args = parser.parse_args()

    print(f"A/A: the remedy does nothing; {args.runs} runs a line, {1 - ALPHA:.0%} intervals")
    print(f"{'job':<22}{'kept':>8}{'undone':>8}{'open':>8}{'median steps':>14}")
    for kind in KINDS:
        found = [run(kind, 1.0, seed, 60 * MINUTES_NS) for seed in range(args.runs)]
        print(
            f"{kind.name:<22}{share(found, 'better'):>8.1%}{share(found, 'hopeless'):>8.1%}"
            f"{share(found, 'undecided'):>8.1%}{np.median([each.steps for each in found]):>14.0f}",
            flush=True,
        )

    print(f"\nPower: {args.power_runs} runs a line; steps until the remedy was kept")
    print(f"{'job':<22}{'gain':>6}{'kept':>8}{'<= 2000':>9}{'median':>8}{'90 %':>8}{'estimate':>10}")
    for kind in KINDS:
        for speed in (1.03, 1.05, 1.10, 1.30):
            found = [run(kind, speed, seed, 60 * MINUTES_NS) for seed in range(args.power_runs)]
            steps = np.array([each.steps for each in found if each.decision == "better"] or [0])
            factors = [each.interval.factor for each in found if each.interval is not None]
            within = sum(each.decision == "better" and each.steps <= 2000 for each in found) / len(found)
            print(
                f"{kind.name:<22}{speed - 1:>6.0%}{share(found, 'better'):>8.1%}{within:>9.1%}"
                f"{np.median(steps):>8.0f}{np.quantile(steps, 0.9):>8.0f}{np.median(factors) - 1:>10.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
