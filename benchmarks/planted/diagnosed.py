"""Starts a case's job, has it diagnosed the way a user would, and sees that it lives on."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.planted import results
from benchmarks.planted.case import UNDECIDED, Case, Knob
from benchmarks.planted.job_process import NOTHING, JobFailed, PlantedJob, end_descendants, product
from benchmarks.planted.load import LoadMeter
from benchmarks.planted.matrix import score

SETTLE_S = 1.5  # a job that has only just begun is another question
COMMAND_S = 120.0
LIFE = {"seconds": 180}  # longer than any command; a job left alone ends by itself


def diagnose(
    case: Case, environment: Mapping[str, str], for_s: float | None, settled: Mapping[str, Knob] = NOTHING
) -> dict[str, Any]:
    """One row of the matrix: verdict, confidence, times, whether the job lives on, load; as a user gets it.

    Raises:
        JobFailed: the job did not train.
    """
    meter = LoadMeter()
    row: dict[str, Any] = {"case": case.name, "truth": case.truth}
    with PlantedJob(case, environment=environment, over={**LIFE, **settled}) as job:
        job.wait_for_training()
        time.sleep(SETTLE_S)
        began = time.monotonic()
        words = ("diagnose", str(job.pid), *(() if for_s is None else ("--for", f"{for_s:g}s")))
        try:
            row |= _outcome(product(environment, *words, within_s=COMMAND_S))
        except (JobFailed, KeyError) as failed:
            row |= {"failed": str(failed)}
        row["command_s"] = round(time.monotonic() - began, 2)
        row["lives_on"] = job.works_on()
        row["first_named_s"] = seconds_until(
            environment, job.pid, lambda verdict: verdict["regime"] not in UNDECIDED
        )
        row["first_high_s"] = seconds_until(
            environment, job.pid, lambda verdict: verdict["confidence"] == "high"
        )
        if not row["lives_on"]:
            row.setdefault("failed", "the job did not live on")
    row["left_behind"] = [name for name in end_descendants() if "autobrrr" in name.replace(str(ROOT), "")]
    row["load"] = asdict(meter.read())
    if score(row) == "right":
        row.pop("diagnosis", None)  # the evidence is kept of what has to be understood
    return row


def _outcome(found: dict[str, Any]) -> dict[str, Any]:
    probe = found.get("batch_probe") or {}
    return {
        "verdict": found["regime"],
        **{name: found[name] for name in ("confidence", "reason", "limit", "limit_confidence")},
        "shares": found["shares"],
        "step_ns": found["step_ns"],
        "steps": found.get("steps"),
        "ratio_2x": probe.get("ratio_2x"),
        "own_cost_share": (found.get("cost") or {}).get("share"),
        "where": found.get("where"),
        "advice": found.get("advice"),
        "diagnosis": found,
    }


def seconds_until(
    environment: Mapping[str, str], pid: int, holds: Callable[[dict[str, Any]], bool]
) -> float | None:
    """From attach to the first verdict of which this holds, by the session's log; None: to none."""
    logs = sorted(Path(environment["XDG_STATE_HOME"], "autobrrr", "sessions").glob(f"*-{pid}.jsonl"))
    attached_s = None
    for entry in results.read(logs[-1]) if logs else ():
        if entry["kind"] == "attached" and attached_s is None:
            attached_s = entry["at"]
        if entry["kind"] == "verdict" and attached_s is not None and holds(entry["body"]):
            return round(float(entry["at"] - attached_s), 2)
    return None
