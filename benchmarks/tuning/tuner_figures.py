"""The tuner's promised figures: false alarms, power, and how near it comes to the best of all combinations.

    python -m benchmarks.tuning.tuner_figures [--tries 200] [--seeds 5]

All of it simulated, with the product's own blocks, interval and rules: A/A and power under 5 % noise with
lag-one correlation 0.5 and 6 % drift; then whole tunings of jobs whose every combination of remedies was
measured (`combinations.py`), replayed from that table under the same noise. `--all-kinds`: harder noise too.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autobrrr.tuner.candidate_space import Choice
from autobrrr.tuner.live_search import tune
from autobrrr.tuner.tune_settings import TuneSettings
from benchmarks import ROOT
from benchmarks.tuning.tuner_statistics import KINDS, MINUTES_NS, Kind, run
from support.simulated.tuner import SimulatedJob

TABLES = ROOT / "benchmarks" / "results" / "combinations.json"
MOST_STEPS = 2000
GAIN = 1.03
RIDGE = 1.0
USUAL_KINDS = 3  # steps of three lengths under the noise above


@dataclass
class Replayed(SimulatedJob):
    """A job whose steps take what its table says of the remedies that are on."""

    table: dict[str, float] = field(default_factory=dict)

    def _speed(self) -> float:
        names = (self._key(name, options) for name, options, _ in self.on.values())
        return self.table[""] / self.table[" + ".join(sorted(names))]


def false_alarms_and_power(tries: int, kinds: Sequence[Kind]) -> None:
    """One line for each kind of job."""
    print(f"{tries} tries a line; steps: all that the job trained until the decision, switching included")
    print(f"{'job':<22}{'A/A kept':>10}{'3 % kept':>10}{f'<= {MOST_STEPS}':>10}{'median':>8}{'90 %':>7}")
    for kind in kinds:
        nothing = [run(kind, 1.0, seed, 60 * MINUTES_NS) for seed in range(tries)]
        helpful = [run(kind, GAIN, seed, 60 * MINUTES_NS) for seed in range(tries)]
        kept = [each for each in helpful if each.decision == "better"]
        # A block drops two steps to settle, and a switch lets as many pass as fit into 5 ms.
        around = 2 + 1 + 5e6 / kind.base_ns
        steps = [each.steps + 2 * each.pairs * around for each in kept]
        within = sum(count <= MOST_STEPS for count in steps) / tries
        print(
            f"{kind.name:<22}{np.mean([each.decision == 'better' for each in nothing]):>10.1%}"
            f"{len(kept) / tries:>10.1%}{within:>10.1%}"
            f"{np.median(steps or [0]):>8.0f}{np.quantile(steps or [0], 0.9):>7.0f}",
            flush=True,
        )


def smoothed(table: dict[str, float]) -> dict[str, float]:
    """The table without the scatter of single combinations: effects of remedies and of their pairs.

    Least squares on log times, pairs held back by a ridge of one combination's weight. The fastest of 72
    combinations as measured would be the luckiest.
    """
    rows = [frozenset(key.split(" + ")) if key else frozenset() for key in table]
    labels = sorted(set().union(*rows))
    pairs = [
        {a, b} for i, a in enumerate(labels) for b in labels[i + 1 :] if any({a, b} <= row for row in rows)
    ]
    effects = [set(), *({label} for label in labels), *pairs]
    design = np.array([[float(effect <= row) for effect in effects] for row in rows])
    ridge = np.diag([0.0] * (1 + len(labels)) + [RIDGE] * len(pairs))
    logs = np.log(list(table.values()))
    found = np.linalg.solve(design.T @ design + ridge, design.T @ logs)
    return dict(zip(table, np.exp(design @ found).tolist(), strict=True))


def against_all_combinations(seeds: int) -> None:
    """One line for each job that was measured in full."""
    tables = json.loads(TABLES.read_text()) if TABLES.exists() else {}
    print(f"\nagainst all combinations, {seeds} tunings a line: worst of them, and the mean")
    print(f"{'job':<14}{'combinations':>13}{'comparisons':>13}{'share':>8}{'best':>8}{'of best':>18}")
    for name, found in tables.items():
        table = smoothed({key: float(value) for key, value in found["step_ns"].items()})
        names = sorted({part.partition("(")[0] for key in table for part in key.split(" + ") if part})
        best = table[""] / min(table.values())
        reached, comparisons = [], []
        for seed in range(seeds):
            job = Replayed(seed=seed, base_ns=table[""], threads=1, table=table)
            settings = TuneSettings(
                budget_ns=5 * MINUTES_NS, horizon_ns=240 * MINUTES_NS, only=tuple(names), seed=seed
            )
            asked: set[tuple[str, str | None, str]] = set()
            tuning = tune(
                job,
                settings=settings,
                on_progress=lambda now, asked=asked: asked.add(
                    (now.stage, now.remedy, json.dumps(now.options, sort_keys=True))
                ),
            )
            kept = [
                Choice(remedy=trial.remedy, options=tuple(trial.options.items())).label
                for trial in tuning.trials
                if trial.outcome == "kept"
            ]
            reached.append(table[""] / table[" + ".join(sorted(kept))])
            comparisons.append(len(asked))
        share = max(comparisons) / (len(table) - 1)
        print(
            f"{name:<14}{len(table):>13}{max(comparisons):>13}{share:>8.0%}{best:>7.2f}x"
            f"{min(reached) / best:>10.1%} {np.mean(reached) / best:>7.1%}",
            flush=True,
        )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--all-kinds", action="store_true", help="the noise that is harder too")
    args = parser.parse_args()
    false_alarms_and_power(args.tries, KINDS if args.all_kinds else KINDS[:USUAL_KINDS])
    against_all_combinations(args.seeds)


if __name__ == "__main__":
    main()
