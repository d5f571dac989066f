"""Is the ratio that `tune -- CMD` claims the ratio that users will see?

    python -m benchmarks.relaunch.relaunch_claims [--pairs 5] [--seconds 1.0] [--only NAME]…

For each job one study by the product, then an independent comparison: the same two commands, without any
agent or walls, each in a process of its own, in turn (A B B A …), rate by the job's own clock. The claim
holds where both intervals together allow it: |log(claim / seen)| <= sqrt(half of one² + half of the other²).
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from autobrrr import recipe
from autobrrr.records import Tuning
from autobrrr.relaunch.search.param_specs import parse_parameter
from autobrrr.relaunch.search.point_search import Search
from autobrrr.relaunch.search.search_space import make_space
from autobrrr.relaunch.study.study import Study
from autobrrr.relaunch.trial.trial_factory import TrialFactory
from benchmarks import parser
from benchmarks.relaunch.relaunch_spaces import ALL, JOB, environment
from benchmarks.turns import Gain, gain, rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job and one thing that is varied."""

    flags: str
    spec: str


CASES = {
    "mlp, batch": Case(flags="--work mlp --batch-size 8", spec="--batch-size=choice:8,32"),
    "mlp, foreach": Case(flags="--work mlp --depth 16 --foreach 0", spec="--foreach=choice:0,1"),
    "mlp, one thread": Case(flags="--work mlp --width 128", spec="env:OMP_NUM_THREADS=choice:1,2"),
    "wide mlp, batch": Case(flags="--work mlp --width 512 --batch-size 8", spec="--batch-size=choice:8,32"),
    "images, batch": Case(flags="--work images --batch-size 4", spec="--batch-size=choice:4,16"),
    "images, narrower": Case(flags="--work images --width 64 --batch-size 8", spec="--width=choice:16,64"),
    "conv, depth": Case(flags="--work conv --width 16 --depth 12 --batch-size 4", spec="--depth=choice:4,12"),
    "embed, batch": Case(flags="--work embed --batch-size 16", spec="--batch-size=choice:16,64"),
    "pointwise, depth": Case(flags="--work pointwise --batch-size 32", spec="--depth=choice:4,8"),
    "pointwise, memory": Case(
        flags="--work pointwise --batch-size 64", spec="env:MALLOC_TOP_PAD_=choice:268435456"
    ),
}


def claimed(case: Case, folder: Path) -> tuple[Tuning, recipe.Recipe | None]:
    """What a study says."""
    command = [sys.executable, str(JOB), *case.flags.split()]
    space = make_space([parse_parameter(case.spec, command, environment(), {})], command, {}, ALL)
    with TrialFactory(
        command=tuple(command),
        folder=JOB.parent,
        environment=environment(),
        runtime=folder / "run",
        space=space,
    ) as stable:
        return Study(stable=stable, space=space, search=Search(space)).run()


def seen(case: Case, found: recipe.Recipe, pairs: int, seconds: float) -> Gain:
    """Runs the command as it is and with the recipe's flags and variables, in turns."""
    plain = [sys.executable, str(JOB), *case.flags.split()]
    lasts = ["--seconds", str(seconds)]
    better = [*recipe.with_flags(plain, found.args), *lasts]
    without, with_it = environment(), {**environment(), **found.env}
    return gain(pairs, lambda: rate([*plain, *lasts], without), lambda: rate(better, with_it))


def main() -> None:
    flags = parser(__doc__)
    flags.add_argument("--pairs", type=int, default=5)
    flags.add_argument("--seconds", type=float, default=1.0)
    flags.add_argument("--only", action="append", choices=list(CASES))
    args = flags.parse_args()
    print("| job | claimed | seen | the claim holds |\n|---|---|---|---|")
    held = claims = 0
    for name in args.only or CASES:
        with tempfile.TemporaryDirectory() as folder:
            tuning, found = claimed(CASES[name], Path(folder))
        if found is None or tuning.interval is None:
            print(f"| {name} | nothing | | |", flush=True)
            continue
        claim = Gain(factor=tuning.speedup, low=tuning.interval[0], high=tuning.interval[1])
        measured = seen(CASES[name], found, args.pairs, args.seconds)
        holds = claim.agrees(measured)
        held, claims = held + holds, claims + 1
        print(f"| {name} | {claim} | {measured} | {'yes' if holds else 'no'} |", flush=True)
    print(f"\n{held} of {claims} claims hold")


if __name__ == "__main__":
    main()
