"""How long after attach a regime is first named, for jobs of long steps.

Each job is the wide net of the planted table, as deep as the step shall be long; `autobrrr diagnose` names
it from outside. Promised: within 10 s or 16 steps of the attach, whichever is later.
"""

import argparse
from collections.abc import Sequence

from benchmarks.planted.case import Case
from benchmarks.planted.diagnosed import diagnose
from benchmarks.planted.job_process import adopt_orphans, end_descendants, own_folders

PROMISED_S = 10.0
PROMISED_STEPS = 16


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depths", type=int, nargs="+", default=[24, 44, 100], help="layers of each job")
    parser.add_argument("--for", dest="for_s", type=float, default=40.0, metavar="S")
    args = parser.parse_args(argv)
    adopt_orphans()
    print("| step ms | named after s | promised s | high after s | verdict | load |")
    print("|---|---|---|---|---|---|")
    try:
        with own_folders() as environment:
            for depth in args.depths:
                print(_row(depth, dict(environment), args.for_s), flush=True)
    finally:
        end_descendants()


def _row(depth: int, environment: dict[str, str], for_s: float) -> str:
    case = Case(
        name=f"wide-{depth}",
        job="mlp",
        knobs={"depth": depth, "width": 512, "batch": 512},
        truth="compute",
        why="512 rows through 512 x 512 weights",
    )
    row = diagnose(case, environment, for_s)
    if row.get("failed"):
        return f"| - | {row['failed']} | | | | |"
    step_s = row["step_ns"]["median"] / 1e9
    promised = max(PROMISED_S, PROMISED_STEPS * step_s)
    named, high = row["first_named_s"], row["first_high_s"]
    return (
        f"| {1e3 * step_s:.0f} | {_seconds(named)} | {promised:.1f} | {_seconds(high)} | "
        f"{row['verdict']} {row['confidence']} | {row['load']['foreign_cores']:.2f} |"
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


if __name__ == "__main__":
    main()
