"""Does the probe foretell twice the batch? The scripts are really run at B and at 2B.

    python -m benchmarks.planted.ratio [--only PATTERN] [--rounds 2]

Six public kinds of model (MLP, CNN with BatchNorm, LSTM, transformer, GAN, DLRM) and planted jobs. Truth:
processes of the same script at B and 2B in turns (B 2B 2B B), each under its own stopwatch. Told:
`batch_probe` of `autobrrr attach --json` on the job at B. A figure that is not shown (a guard failed) is no
error and is listed.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.planted import results
from benchmarks.planted.case import Case, Knob
from benchmarks.planted.diagnosed import LIFE, SETTLE_S
from benchmarks.planted.job_process import (
    JobFailed,
    PlantedJob,
    adopt_orphans,
    end_descendants,
    own_folders,
    timed,
)
from benchmarks.planted.load import LoadMeter

WITHIN = 0.10


def kind(name: str, job: str, **knobs: Knob) -> Case:
    return Case(name=name, job=job, truth="mixed", why="no claim: only its batch is doubled", knobs=knobs)


KINDS: tuple[Case, ...] = (
    kind("mlp", "mlp", depth=4, width=256, batch=64),
    kind("cnn-batchnorm", "conv", channels=16, layers=2, batch=8, side=16),
    kind("lstm", "recurrent", width=64, length=32, batch=16),
    kind("transformer", "transformer", width=64, length=32, batch=8, layers=2),
    kind("gan", "gan", width=64, batch=32),
    kind("dlrm", "dlrm", rows=2000, width=16, batch=128),
    kind("planted-deep-tiny-mlp", "mlp", depth=40, width=16, batch=4),
    kind("planted-wide-mlp", "mlp", depth=3, width=512, batch=256),
    kind("planted-skinny-matmul", "mlp", depth=2, width=2048, batch=2),
    kind("planted-tiny-recurrence", "tiny_ops"),
    kind("planted-dense-embedding", "embedding", batch=64),
    kind("planted-slow-items", "loader", asleep_us=400.0, batch=16),
)


def really(case: Case, environment: Mapping[str, str], rounds: int, seconds: float) -> dict[str, Any]:
    """Median step at B and 2B over processes in turns, and their ratio in each round."""
    batch = int(case.knobs.get("batch", 8))
    steps: dict[int, list[float]] = {batch: [], 2 * batch: []}
    for turn in range(rounds):
        for size in (batch, 2 * batch) if turn % 2 == 0 else (2 * batch, batch):
            steps[size].append(timed(case, environment, seconds=seconds, over={"batch": size}).median_step_ns)
    ratios = [twice / once for once, twice in zip(steps[batch], steps[2 * batch], strict=True)]
    return {
        "batch": batch,
        "step_ns": statistics.median(steps[batch]),
        "truth": statistics.median(ratios),
        "truth_range": [min(ratios), max(ratios)],
    }


def told(case: Case, environment: Mapping[str, str], for_s: float) -> dict[str, Any]:
    """What the last snapshot of a watched job says of its batch."""
    with PlantedJob(case, environment=environment, over=LIFE) as job:
        job.wait_for_training()
        time.sleep(SETTLE_S)
        words = [sys.executable, "-m", "autobrrr", "attach", str(job.pid), "--foreground", "--json"]
        done = subprocess.run(
            [*words, "--for", f"{for_s:g}s"],
            capture_output=True,
            text=True,
            env=dict(environment),
            timeout=for_s + 90,
            check=False,
        )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise JobFailed(done.stderr[-400:])
    probe: dict[str, Any] = json.loads(lines[-1])["batch_probe"]
    return probe


def row_of(case: Case, environment: Mapping[str, str], args: argparse.Namespace) -> dict[str, Any]:
    meter = LoadMeter()
    truth = really(case, environment, args.rounds, args.seconds)
    probe = told(case, environment, args.for_s)
    end_descendants()
    ratio = probe.get("ratio_2x")
    return {
        "case": case.name,
        **truth,
        "told": ratio,
        "told_interval": probe.get("ratio_2x_interval"),
        "why_not": probe.get("why"),
        "error": ratio / truth["truth"] - 1 if ratio is not None else None,
        "load": asdict(meter.read()),
    }


def markdown(rows: Sequence[dict[str, Any]], about: dict[str, Any]) -> str:
    """The table for people."""
    shown = [row for row in rows if row["told"] is not None]
    within = sum(abs(row["error"]) <= WITHIN for row in shown)
    lines = [
        "# Twice the batch, foretold and really run",
        "",
        ", ".join(f"{name} {value}" for name, value in about.items() if value is not None),
        "",
        f"Shown in {len(shown)} of {len(rows)}; within {WITHIN:.0%} of the truth in {within}.",
        "",
        "| job | B | step ms | told (interval) | really run (range) | error | load |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = row["told_interval"] or (None, None)
        said = row["why_not"] or "not shown"
        if row["told"] is not None:
            said = f"{row['told']:.2f}" + (f" ({low:.2f} to {high:.2f})" if low and high else "")
        error = "-" if row["error"] is None else f"{row['error']:+.1%}"
        least, most = row["truth_range"]
        lines.append(
            f"| {row['case']} | {row['batch']} | {row['step_ns'] / 1e6:.2f} | {said} "
            f"| {row['truth']:.2f} ({least:.2f} to {most:.2f}) | {error} "
            f"| {row['load']['foreign_cores']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", metavar="PATTERN")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each timed run")
    parser.add_argument("--for", dest="for_s", type=float, default=15.0, metavar="S")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--within", type=float, metavar="S", help="start no further job after so long")
    parser.add_argument("--revision")
    parser.add_argument("--out", type=Path, default=results.RESULTS)
    args = parser.parse_args(argv)
    adopt_orphans()
    path = args.out / "planted-ratio.jsonl"
    about = {**results.machine(), "revision": args.revision or results.revision()}
    done = {row["case"] for row in results.latest(results.read(path), about["revision"])}
    until = time.monotonic() + args.within if args.within else float("inf")
    try:
        with own_folders() as environment:
            for case in KINDS:
                wanted = any(fnmatch.fnmatch(case.name, one) for one in args.only or ["*"])
                if wanted and (args.again or case.name not in done) and time.monotonic() < until:
                    results.append(path, {**row_of(case, environment, args), **about})
    except KeyboardInterrupt:
        return 130
    finally:
        end_descendants()
    rows = results.latest(results.read(path), about["revision"])
    if not rows:
        return 1
    text = markdown(rows, {name: about[name] for name in ("cpu", "cores", "torch", "python", "revision")})
    (args.out / "planted-ratio.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
