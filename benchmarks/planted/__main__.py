"""`python -m benchmarks.planted run|confirm|table|list`: planted bottlenecks against the verdict.

confirm measures what is true of each case (stopwatch and formula, no product); run starts each job, has
`autobrrr diagnose` name it, sees that it lives on; table writes the matrix from what was stored. A case that
has a row of this revision is not run again, unless `--again`; Ctrl-C leaves no process.
"""

import argparse
import fnmatch
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.planted import results
from benchmarks.planted.case import Case
from benchmarks.planted.confirm import Confirmer, settled_units
from benchmarks.planted.diagnosed import diagnose
from benchmarks.planted.held_out import HELD_OUT
from benchmarks.planted.job_process import JobFailed, adopt_orphans, end_descendants, own_folders
from benchmarks.planted.matrix import counted, loud, markdown, score, summary
from benchmarks.planted.tables.cases import CASES
from benchmarks.planted.tables.gpu_cases import GPU_CASES

TABLES = {"cpu": CASES, "cuda": GPU_CASES, "held_out": HELD_OUT}


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    chosen = [
        case for case in TABLES[args.table] if any(fnmatch.fnmatch(case.name, one) for one in args.only)
    ]
    if args.verb == "list" or args.list:
        for case in chosen:
            print(f"{case.name:<30}{case.truth:<12}{case.job} {' '.join(case.words())}\n{'':<42}{case.why}")
        print(f"{len(chosen)} cases", file=sys.stderr)
        return 0
    if args.verb == "table":
        return write_table(args)
    if args.table == "cuda" and not has_cuda():
        print("skipped: torch sees no CUDA device here", file=sys.stderr)
        return 0
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    until = time.monotonic() + args.within if args.within else float("inf")
    try:
        with own_folders(args.folders) as environment:
            confirmer = Confirmer(environment, args.seconds)
            proofs = results.latest(results.read(store(args.out, args.table, "confirm")))
            settled = {row["case"]: settled_units(row) for row in proofs}
            measure: Callable[[Case], dict[str, Any]] = (
                confirmer.confirm
                if args.verb == "confirm"
                else lambda case: diagnose(case, environment, args.for_s, settled.get(case.name, {}))
            )
            left = measured(chosen, args, measure, until)
    except KeyboardInterrupt:
        return 130
    finally:
        end_descendants()
    if left:
        print(f"{left} not run: out of time; the same command goes on", file=sys.stderr)
    return write_table(args) if args.verb == "run" else 0


def measured(
    chosen: Sequence[Case], args: argparse.Namespace, measure: Callable[[Case], dict[str, Any]], until: float
) -> int:
    """Measure what has no row yet; returns how many were left for want of time."""
    path = store(args.out, args.table, args.verb)
    about = {**results.machine(), "revision": args.revision or results.revision()}
    done = {
        (row["case"], row.get("repeat", 0))
        for row in results.latest(results.read(path), about["revision"])
        if not row.get("failed") and row.get("holds", True) and not (args.until_quiet and loud(row))
    }
    wanted = [
        (case, repeat)
        for repeat in range(args.repeat)
        for case in chosen
        if args.again or (case.name, repeat) not in done
    ]
    for place, (case, repeat) in enumerate(wanted):
        if time.monotonic() > until:
            return len(wanted) - place
        try:
            row = measure(case)
        except JobFailed as error:
            row = {"case": case.name, "truth": case.truth, "holds": False, "failed": f"the job: {error}"}
            end_descendants()
        results.append(path, {**row, "repeat": repeat, "at": round(time.time()), **about})
        print(line(row), flush=True)
    return 0


def line(row: dict[str, Any]) -> str:
    """One row, for people who wait."""
    if row.get("failed"):
        return f"{row['case']:<30}{row['truth']:<12}FAILED {row['failed']}"
    if "verdict" not in row:
        held = "holds" if row["holds"] else "NOT CONFIRMED"
        return f"{row['case']:<30}{row['truth']:<12}{held:<14}{row['figure']}"
    load = row["load"]["foreign_cores"]
    return (
        f"{row['case']:<30}{row['truth']:<12}{row['verdict']:<12}{row['confidence']:<6}{score(row):<10}"
        f"{row['command_s']:>6.1f} s  load {load:.2f}  {row['reason'][:90]}"
    )


def write_table(args: argparse.Namespace) -> int:
    """Write the matrix of this revision; 1 where a verdict was wrong or a run failed."""
    of = args.revision or results.revision()
    rows = results.latest(results.read(store(args.out, args.table, "run")), of)
    if not rows:
        print(f"no rows of revision {of}", file=sys.stderr)
        return 1
    known = {case.name for case in TABLES[args.table]}
    rows = [row for row in rows if row["case"] in known]
    confirmed = results.latest(results.read(store(args.out, args.table, "confirm")))
    about = {name: rows[-1].get(name) for name in ("cpu", "gpu", "cores", "torch", "python", "revision")}
    text = markdown(rows, confirmed, about)
    (args.out / f"planted-{args.table}.md").write_text(text, encoding="utf-8")
    print(text.split("\n| case |", 1)[0])
    found = summary(counted(rows, confirmed))
    return 1 if found["wrong"] or found["failed"] else 0


def has_cuda() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def store(out: Path, table: str, verb: str) -> Path:
    return out / f"planted-{table}-{verb}.jsonl"


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted", description=__doc__)
    parser.add_argument("verb", nargs="?", default="run", choices=("run", "confirm", "table", "list"))
    parser.add_argument(
        "--list", action="store_true", help="the cases and why their truth holds; run nothing"
    )
    parser.add_argument(
        "--only", action="append", metavar="PATTERN", help="names, with * and ?; may be repeated"
    )
    parser.add_argument("--table", default="cpu", choices=tuple(TABLES))
    parser.add_argument("--repeat", type=int, default=1, metavar="N")
    parser.add_argument("--until-quiet", action="store_true", help="also what was measured on a busy machine")
    parser.add_argument("--again", action="store_true", help="also what has a row of this revision")
    parser.add_argument("--for", dest="for_s", type=float, metavar="S", help="of each diagnosis")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each timed run of confirm")
    parser.add_argument("--within", type=float, metavar="S", help="start no further case after so long")
    parser.add_argument("--revision", help="a name for what is measured, in place of the digest")
    parser.add_argument("--out", type=Path, default=results.RESULTS)
    parser.add_argument("--folders", type=Path, help="keep session logs and caches there")
    args = parser.parse_args(argv)
    args.only = args.only or ["*"]
    return args


if __name__ == "__main__":
    raise SystemExit(main())
