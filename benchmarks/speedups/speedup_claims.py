"""What does `prove` say of speed-ups whose truth is known, when it meets them for the first time?

    python benchmarks/speedups/speedup_claims.py [--run NAME] [--for 90s] [NAME ...]

Fakes and honest ones of `speedups`: scripts that were written before the rules of `prove` were read. The
verb runs as a user runs it. Each verdict is appended to `results/speedup-claims.jsonl`; the table goes beside
it. A fake is judged rightly by anything but `proven`, an honest one wrongly by a refusal alone: a small gain
may well not be told from noise in the time given.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SPEEDUPS = ROOT / "benchmarks" / "speedups"
RESULTS = ROOT / "benchmarks" / "results" / "speedup-claims.jsonl"
TABLE = RESULTS.with_suffix(".md")
CONDITIONS = """\
Two cores that other programs used too (load 3 to 9), 30 s to 90 s a pair: what is not refused can seldom
be told from noise here, so `not_proven` says little of a speed. `first`: as it was, but the checker changed
during the later rows. `mended`: rounding's part of gradients is left out, and timed steps are compared.
`error`: a side ended before it could be timed; since then its run is counted to its end, and that is said.
`others`: six more pairs, 45 s, load 8. `sixty steps`: four of these as runs of 60 steps, of which the count
sees the later part too. `kept aside`: twenty fakes and nineteen honest ones by someone who had not seen the
checker, tried once; fakes as runs of 64 steps, 30 s. `early_checkpoint` and `company_found` were too short to
be timed. Honest ones: six by the verb, the other thirteen counted only, of which two were refused:
`whole_batches` (four micro-batches become one batch) and `gradients_returned` (`torch.autograd.grad`)."""
sys.path.insert(0, str(SPEEDUPS))

from aside_fakes import ASIDE_FAKES  # noqa: E402
from aside_honest import ASIDE_HONEST  # noqa: E402
from fake_speedups import FAKES  # noqa: E402
from honest_speedups import PAIRS  # noqa: E402


def judged(name: str, for_s: str) -> dict[str, Any]:
    """The verdict of the verb, in a process of its own."""
    is_fake = name in FAKES or name in ASIDE_FAKES
    if is_fake:
        file = "fake_speedups.py" if name in FAKES else "aside_fakes.py"
        sides = "text_job.py", f"{file} {name}"
    else:
        file = "honest_speedups.py" if name in PAIRS else "aside_honest.py"
        sides = f"{file} {name} before", f"{file} {name} after"
    words = [f"{sys.executable} {side}" for side in sides]
    began_s = time.monotonic()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "autobrrr", "prove", "--json"),
            *("--for", for_s, "--before", words[0], "--after", words[1]),
        ],
        cwd=SPEEDUPS,
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, Any] = {
        "name": name,
        "truth": "fake" if is_fake else "honest",
        "exit": done.returncode,
        "seconds": round(time.monotonic() - began_s),
    }
    if not done.stdout.strip():
        return {**found, "verdict": "error", "reason": done.stderr.strip()[-600:], "codes": []}
    proof = json.loads(done.stdout)
    same = proof["sameness"] or {}
    return {
        **found,
        "verdict": proof["verdict"],
        "reason": proof["reason"],
        "codes": [each["code"] for each in proof["refusals"]],
        "class": same.get("class"),
        "steps": same.get("compared_steps"),
        "ended": proof["work"] is not None and [proof["work"][side]["ended"] for side in ("before", "after")],
        "ratio": proof["speed"] and proof["speed"]["ratio"],
    }


def table(found: list[dict[str, Any]]) -> str:
    """Markdown, one row a verdict."""
    runs = sorted({each["run"] for each in found})
    parts = ["# Speed-ups of known truth, judged by `prove`\n", f"{CONDITIONS}\n"]
    for run in runs:
        rows = {each["name"]: each for each in found if each["run"] == run}.values()
        wrong = sum(
            each["verdict"] == "proven"
            if each["truth"] == "fake"
            else each["verdict"] in ("refused", "error")
            for each in rows
        )
        parts.append(f"## {run}\n\n{len(rows)} pairs, {wrong} judged wrongly.\n")
        parts.append(
            "| pair | truth | verdict | codes | class | steps | speed | s |\n"
            "|---|---|---|---|---|--:|--:|--:|"
        )
        for each in rows:
            ratio = each.get("ratio")
            parts.append(
                f"| {each['name']} | {each['truth']} | {each['verdict']} | {' '.join(each['codes'])} "
                f"| {each.get('class') or ''} | {each.get('steps') or ''} "
                f"| {'' if ratio is None else f'{ratio:.2f}'} | {each['seconds']} |"
            )
        parts.append("")
    return "\n".join(parts)


def main() -> None:
    """Run what is asked for; all, where nothing is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--run", default="again", help="name of this run in the table")
    parser.add_argument("--for", dest="for_s", default="90s")
    args = parser.parse_args()
    for name in args.names or [*FAKES, *PAIRS, *ASIDE_FAKES, *ASIDE_HONEST]:
        found = {"run": args.run, **judged(name, args.for_s)}
        with RESULTS.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(name, found["verdict"], found["codes"], found["reason"], flush=True)
    TABLE.write_text(table([json.loads(line) for line in RESULTS.read_text().splitlines()]))


if __name__ == "__main__":
    main()
