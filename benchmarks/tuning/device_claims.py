"""What comparisons claim on a virtual GPU by the device's clock, and what they would by the host's.

Whole comparisons with the product's own blocks, interval and stop rule on a job whose queue holds 1,024
launches (`virtual_gpu.py` of the tests), 2 % noise of host and device. Prints two tables: claims against
the truth, which is what a step takes in the long run; and how often something worth nothing is kept.
"""

from __future__ import annotations

import argparse

import numpy as np

from autobrrr.tuner.comparison import Comparison
from support.simulated.gpu_scenarios import SCENARIOS, compared


def said(found: Comparison) -> str:
    """The claim of one comparison."""
    return found.decision if found.interval is None else f"{found.interval.factor:.3f} {found.decision}"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="comparisons a scenario")
    parser.add_argument(
        "--nothing", type=int, default=200, help="comparisons of a job with itself, a scenario"
    )
    args = parser.parse_args()
    print("| scenario | truth | by the host's clock | by the device's | worst of all |")
    print("|---|---|---|---|---|")
    for each in SCENARIOS:
        found = [compared(each, seed=seed) for seed in range(args.seeds)]
        off = [one.interval.factor / each.truth - 1 for one in found if one.interval is not None]
        host = said(compared(each, clock="host"))
        worst = max(off, key=abs) if off else float("nan")
        print(f"| {each.name} | {each.truth:.3f} | {host} | {said(found[0])} | {worst:+.1%} |", flush=True)
    print("\n| job against itself | kept | claims beyond 1 % | virtual seconds, median |")
    print("|---|---|---|---|")
    for each in dict.fromkeys(one.without for one in SCENARIOS):
        scenario = type(SCENARIOS[0])(name="", without=each, with_it=each)
        found = [compared(scenario, seed=seed) for seed in range(args.nothing)]
        kept = sum(one.decision == "better" for one in found)
        loud = sum(one.interval is not None and one.interval.low > 0.01 for one in found)
        seconds = float(np.median([one.duration_ns for one in found])) / 1e9
        name = f"{each.launches if each.entries is None else each.entries} entries, item {each.item_every}"
        print(f"| {name} | {kept} of {len(found)} | {loud} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
