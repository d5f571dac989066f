"""Starts a case's job, has it diagnosed the way a user would, and sees that it lives on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.planted.case import Case, Knob
from benchmarks.planted.job_process import NOTHING, PlantedJob, end_descendants
from benchmarks.planted.load import LoadMeter
from benchmarks.planted.matrix import score
from benchmarks.planted.results import ROOT

SETTLE_S = 1.5  # a job that has only just begun is another question
COMMAND_S = 120.0
LIFE = {"seconds": 180}  # longer than any command; a job left alone ends by itself


def diagnose(
    case: Case,
    environment: Mapping[str, str],
    for_s: float,
    settled: Mapping[str, Knob] = NOTHING,
    python: str = sys.executable,
) -> dict[str, Any]:
    """One row of the matrix: verdict, confidence, times, whether the job lives on, load.

    Raises:
        JobFailed: the job did not train.
    """
    meter = LoadMeter()
    row: dict[str, Any] = {"case": case.name, "truth": case.truth}
    with PlantedJob(case, environment=environment, over={**LIFE, **settled}, python=python) as job:
        job.wait_for_training()
        time.sleep(SETTLE_S)
        began = time.monotonic()
        words = [python, "-m", "autobrrr", "diagnose", str(job.pid), "--json", "--for", f"{for_s:g}s"]
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, env=dict(environment), timeout=COMMAND_S, check=False
            )
        except subprocess.TimeoutExpired:
            row |= {"failed": f"diagnose took more than {COMMAND_S:.0f} s"}
        else:
            row |= _outcome(done)
        row["command_s"] = round(time.monotonic() - began, 2)
        row["lives_on"] = job.works_on()
        row |= _times(Path(environment["XDG_STATE_HOME"]), job.pid)
        if not row["lives_on"]:
            row.setdefault("failed", "the job did not live on")
    row["left_behind"] = [name for name in end_descendants() if "autobrrr" in name.replace(str(ROOT), "")]
    row["load"] = asdict(meter.read())
    if score(row) == "right":
        row.pop("diagnosis", None)  # the evidence is kept of what has to be understood
    return row


def _outcome(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    try:
        found = json.loads(done.stdout.strip().splitlines()[-1])
        verdict = {"verdict": found["regime"], "confidence": found["confidence"], "reason": found["reason"]}
        verdict |= {"limit": found["limit"], "limit_confidence": found["limit_confidence"]}
    except (ValueError, IndexError, KeyError, TypeError):
        return {"failed": f"exit code {done.returncode}: {done.stderr.strip()[-400:]}"}
    probe = found.get("batch_probe") or {}
    return {
        **verdict,
        "shares": found["shares"],
        "step_ns": found["step_ns"],
        "steps": found.get("steps"),
        "ratio_2x": probe.get("ratio_2x"),
        "own_cost_share": (found.get("cost") or {}).get("share"),
        "diagnosis": found,
    }


def _times(state: Path, pid: int) -> dict[str, float | None]:
    """Seconds from attach to the first verdict that names a regime, and to the first `high` one."""
    logs = sorted((state / "autobrrr" / "sessions").glob(f"*-{pid}.jsonl"))
    attached_s = named_s = high_s = None
    for line in logs[-1].read_text(encoding="utf-8").splitlines() if logs else ():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if entry["kind"] == "attached" and attached_s is None:
            attached_s = entry["at"]
        if entry["kind"] == "verdict" and attached_s is not None:
            since_s = round(entry["at"] - attached_s, 2)
            if named_s is None and entry["body"]["regime"] not in ("mixed", "unknown"):
                named_s = since_s
            if high_s is None and entry["body"]["confidence"] == "high":
                high_s = since_s
    return {"first_named_s": named_s, "first_high_s": high_s}
