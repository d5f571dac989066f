"""Does `prove` say rightly where a slower side loses its time?

    python benchmarks/speedups/slower_causes.py [NAME ...]

The regressions of `speedups/regressions.py`, each against the job as it was: one start of each side, run in
turn, as `prove` does once a side is slower. Right: a phase and a function that it names. No place is no
error, a wrong one is.
"""

import argparse
import json
import os
from typing import Any

from regressions import REGRESSIONS, Regression
from timed_sides import ROOT, timed_sides

from autobrrr.prove.slower_cause import why_slower

RESULTS = ROOT / "benchmarks" / "results" / "slower-causes.jsonl"
TABLE = RESULTS.with_suffix(".md")


def cause_of(name: str) -> dict[str, Any]:
    """What is said of one regression."""
    truth = REGRESSIONS[name]
    words = [("regressions.py", name, side) for side in ("before", "after")]
    with timed_sides(*words) as turns:
        found = why_slower(turns)
    row: dict[str, Any] = {"name": name, "load": round(os.getloadavg()[0], 1)}
    if found is None:
        return {**row, "phase": None, "place": None, "right": None}
    function = None if found.place is None else found.place.rpartition(" ")[2]
    return {
        **row,
        "phase": found.phase,
        "place": found.place,
        "place_ms": None if found.place_ns is None else round(found.place_ns / 1e6, 2),
        "step_ms": [round(sum(each) / 1e6, 2) for each in zip(*found.phases_ns.values(), strict=True)],
        "phases_ms": {
            key: [round(each / 1e6, 2) for each in value] for key, value in found.phases_ns.items()
        },
        "right": is_right(truth, found.phase, function),
    }


def is_right(truth: Regression, phase: str, function: str | None) -> bool:
    """Neither is wrong."""
    return phase in truth.phases and (function is None or function in truth.functions)


def main() -> None:
    """Run what is asked for; all, where nothing is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--run", default="again", help="name of this run in the table")
    args = parser.parse_intermixed_args()
    for name in args.names or REGRESSIONS:
        found = {"run": args.run, **cause_of(name)}
        with RESULTS.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(json.dumps(found), flush=True)
    TABLE.write_text(table([json.loads(line) for line in RESULTS.read_text().splitlines()]))


def table(found: list[dict[str, Any]]) -> str:
    """Markdown, one row a regression."""
    parts = [
        "# Where a slower side loses its time, as `prove` says it\n",
        "On two crowded cores (load 7 to 15). `first`: one window of each side. `windows`: six of each that"
        " take turns; nothing is said where they differ. `windows, waits`: slow steps get longer ones,"
        " and no phase is blamed that grew by less than others took of the CPU. `thirty-one`: nineteen"
        " more, the code as before. `longer looks`: all again (load 1 to 4), with the quick steps of 6 to 21"
        " windows; in `counted_in_python` the truth said `other` first, and the work lies between the model's"
        " call and backward, which is forward.\n",
    ]
    for run in sorted({each["run"] for each in found}):
        rows = {each["name"]: each for each in found if each["run"] == run}.values()
        counts = [sum(each["right"] is right for each in rows) for right in (True, False, None)]
        parts.append(f"## {run}\n\nRight {counts[0]}, wrong {counts[1]}, nothing said {counts[2]}.\n")
        parts.append("| regression | step, ms | phase | place | right |\n|---|---|---|---|---|")
        for each in rows:
            steps = " → ".join(map(str, each.get("step_ms", [])))
            judged = "" if each["right"] is None else "yes" if each["right"] else "no"
            parts.append(f"| {each['name']} | {steps} | {each['phase']} | {each['place']} | {judged} |")
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    main()
