"""How often the tuner keeps what does nothing, and how many steps it needs to see what does something.

    python -m benchmarks.tuning.tuner_figures [--tries 200] [--gains 1.03,1.10] [--all-kinds]

Whole comparisons with the product's own blocks, interval and stop rule on a simulated job: 5 % noise
with lag-one correlation 0.5, 6 % drift, slow steps, evaluations, checkpoints. `--all-kinds`: harder too.
"""

import argparse
from dataclasses import dataclass

import numpy as np

from autobrrr.records import from_registry
from autobrrr.tuner.arm_switch import ArmSwitch
from autobrrr.tuner.comparison import Comparing, Comparison, compare
from autobrrr.tuner.stop_rules import WORTHWHILE, proof
from support.simulated.tuner import Effect, SimulatedJob

MINUTES_NS = 60_000_000_000
CHOICE = from_registry("optimizer.fused")
MOST_STEPS = 2000
USUAL_KINDS = 3  # steps of three lengths under the noise above


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


def run(kind: Kind, speed: float, seed: int) -> Comparison:
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
        ArmSwitch(job),
        Comparing(
            without=(),
            with_it=(CHOICE,),
            rule=proof(WORTHWHILE, 30 * MINUTES_NS),
            deadline_ns=job.now_ns() + 60 * MINUTES_NS,
            step_ns=kind.base_ns,
            seed=seed,
        ),
    )


def line(kind: Kind, gain: float, found: list[Comparison]) -> str:
    """One row of the table."""
    kept = [each for each in found if each.decision == "better"]
    # A block drops two steps to settle, and a switch lets as many pass as fit into 5 ms.
    around = 2 + 1 + 5e6 / kind.base_ns
    steps = [each.steps + 2 * each.pairs * around for each in kept]
    factors = [each.interval.factor for each in found if each.interval is not None]
    within = sum(count <= MOST_STEPS for count in steps)
    return (
        f"{kind.name:<22}{gain - 1:>6.0%}{len(kept) / len(found):>8.1%}{within / len(found):>9.1%}"
        f"{np.median(steps or [0]):>8.0f}{np.quantile(steps or [0], 0.9):>8.0f}"
        f"{np.median(factors or [1]) - 1:>10.1%}"
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=200, help="comparisons a line")
    parser.add_argument("--gains", default="1.03", help="what the remedy is worth, with commas")
    parser.add_argument("--all-kinds", action="store_true", help="the noise that is harder too")
    args = parser.parse_args()
    print(f"{args.tries} tries a line; steps: all that the job trained until it was kept, switching included")
    within = f"<= {MOST_STEPS}"
    print(f"{'job':<22}{'gain':>6}{'kept':>8}{within:>9}{'median':>8}{'90 %':>8}{'estimate':>10}")
    for kind in KINDS if args.all_kinds else KINDS[:USUAL_KINDS]:
        for gain in (1.0, *map(float, args.gains.split(","))):
            found = [run(kind, gain, seed) for seed in range(args.tries)]
            print(line(kind, gain, found), flush=True)


if __name__ == "__main__":
    main()
