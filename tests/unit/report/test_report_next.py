"""What to type now, tables that wrap in their cell, and what a run with a recipe says."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from autobrrr.recipe import Recipe
from autobrrr.recipe.recipe_contents import Measured
from autobrrr.records import Advice, CpuTaker, DoctorCheck, ExactnessClass, Reach, Tuning
from autobrrr.records.busy_words import decide_words
from autobrrr.report.next_step import (
    after_checks,
    after_diagnosis,
    after_explanation,
    after_listing,
    after_proof,
    after_run,
    after_tuning,
)
from autobrrr.report.text.run_text import begun_with, speed_reached
from support.judged.verdicts import OVERHEAD
from support.proofs import proof, refused
from support.screens import tui
from support.sessions.sidecar import host_sample


def advice(remedy: str, reach: Reach, class_: ExactnessClass = "rounding") -> Advice:
    return Advice(remedy=remedy, why="", expected=1.2, reach=reach, class_=class_)


LIVE = advice("optimizer.fused", "live")
RISKY = advice("precision.autocast_bf16", "live", "changes-training")
BY_NAME = advice("gc.threshold", "live", "bitwise")
UNPROVEN = advice("compile.reduce_overhead", "live")
NEXT = advice("loader.workers", "next_epoch")
EDIT = msgspec.structs.replace(advice("sync.item", "edit"), expected=4.0, place="train.py:22 guard")
CHANGING_EDIT = advice("edit.no_autocast", "edit", "changes-training")
WAITS = host_sample(run_delay_share=0.5)
BATCH = advice("batch.larger", "relaunch", "changes-training")


@pytest.mark.parametrize(
    ("given", "begins"),
    [
        ([EDIT, LIVE], "edit train.py:22 guard, 4.00x predicted (autobrrr explain sync.item)"),
        ([CHANGING_EDIT, EDIT], "edit the script, 1.20x predicted (autobrrr explain edit.no_autocast)"),
        ([LIVE, NEXT], "autobrrr tune {pid} --recipe fast.toml   (tries optimizer.fused;"),
        ([RISKY, LIVE, NEXT], "autobrrr tune {pid} --recipe fast.toml   (tries optimizer.fused;"),
        ([BY_NAME, UNPROVEN, LIVE], "autobrrr tune {pid} --recipe fast.toml   (tries optimizer.fused;"),
        ([BY_NAME, RISKY], "autobrrr explain overhead"),
        ([BY_NAME, UNPROVEN, NEXT], "autobrrr tune --param loader.workers -- python train.py"),
        ([RISKY, EDIT], "edit train.py:22 guard, 4.00x predicted ("),
        ([BATCH, NEXT], "autobrrr tune --param loader.workers -- python train.py"),
        ([NEXT, EDIT], "autobrrr tune --param loader.workers -- python train.py"),
        ([EDIT], "edit train.py:22 guard, 4.00x predicted ("),
        ([EDIT, NEXT], "edit train.py:22 guard, 4.00x predicted ("),
        ([], "autobrrr explain overhead"),
    ],
)
def test_after_a_diagnosis_comes_what_is_worth_trying(given: list[Advice], begins: str) -> None:
    found = msgspec.structs.replace(OVERHEAD, advice=given, decide_with=None, provisional=False)
    assert after_diagnosis(found).startswith(begins.format(pid=found.pid))


def test_on_a_crowded_machine_it_names_who_is_in_the_way() -> None:
    other = CpuTaker(pid=14868, command="python \x1b[2Jjob.py", share=0.36)
    found = msgspec.structs.replace(OVERHEAD, advice=[LIVE], provisional=True, contention=[other])
    who = "python \\x1b[2Jjob.py (pid 14868)"
    said = f"autobrrr diagnose {found.pid}   (once its CPUs are free of {who})"
    assert after_diagnosis(found) == said
    again = f"autobrrr diagnose {found.pid}"
    open_ = msgspec.structs.replace(found, decide_with=again, host=WAITS, evidence=[])
    assert decide_words(open_) == said
    alone = msgspec.structs.replace(open_, contention=[])
    assert decide_words(alone).endswith("(once the machine is quiet, or the job uses fewer threads)")
    assert decide_words(msgspec.structs.replace(alone, host=None)) == again


@pytest.mark.parametrize(
    ("reach", "class_", "said"),
    [
        ("live", "rounding", "autobrrr tune PID --only r "),
        ("live", "changes-training", "autobrrr tune PID --only r --allow changes-training "),
        ("relaunch", "bitwise", "autobrrr tune --param r -- CMD"),
        ("edit", "bitwise", "autobrrr diagnose PID "),
        (None, None, "autobrrr diagnose PID "),
    ],
)
def test_an_explained_remedy_leads_to_its_trial(reach: str | None, class_: str | None, said: str) -> None:
    assert f"{after_explanation('r', reach, class_)} ".startswith(said)
    larger = after_explanation("batch.larger", "next_epoch", "changes-training")
    assert larger.startswith("autobrrr tune --param")


def test_after_a_run_comes_the_search_for_speed_or_the_proof_of_it() -> None:
    command = ["python", "train.py"]
    assert after_run(command, None, timed=True).startswith("autobrrr tune -- python train.py ")
    proves = after_run(command, "a b.toml", timed=True)
    assert proves.startswith("autobrrr prove --recipe 'a b.toml' -- python train.py ")
    of_ranks = after_run(command, "a.toml", timed=True, has_ranks=True)
    assert of_ranks.startswith("autobrrr tune -- python train.py ")
    assert after_run(["ls"], None, timed=False).startswith("autobrrr doctor ")


def test_a_job_that_has_ended_is_started_again_with_what_was_advised() -> None:
    ended = msgspec.structs.replace(OVERHEAD, activity="job ended", advice=[LIVE])
    assert after_diagnosis(ended).startswith("autobrrr tune --param optimizer.fused -- python train.py ")
    said = f"autobrrr run -- python train.py   (process {ended.pid} has ended)"
    assert after_diagnosis(msgspec.structs.replace(ended, advice=[])) == said


def tuned(*kept: str, recipe: str | None = None) -> Tuning:
    return msgspec.structs.replace(tui.tuned(), kept=list(kept), recipe=recipe)


def test_what_was_kept_leads_to_the_next_run() -> None:
    command = ["python", "my job.py"]
    written = tuned("a", recipe="fast one.toml")
    line = "autobrrr run --recipe 'fast one.toml' -- python 'my job.py'"
    assert after_tuning(written, 7, command) == line
    assert after_tuning(written, None, command) == line
    assert "measures anew" in after_tuning(tuned("a"), None, command)  # a finished study is not gone on with
    assert "e writes what is on as a recipe" in after_tuning(tuned("a"), 7, command)
    assert after_tuning(tuned(), 7, command) == "autobrrr report 7   (shows what was tried)"
    assert after_tuning(tuned(), 7, command, EDIT).startswith("edit train.py:22 guard, ")
    assert after_tuning(written, 7, []).endswith("-- CMD")


@pytest.mark.parametrize(
    ("attachable", "line"),
    [(True, "autobrrr diagnose 7"), (False, "autobrrr doctor 7   (says why it is not ready)")],
)
def test_a_list_leads_to_a_job_that_is_ready(attachable: bool, line: str) -> None:
    assert after_listing([tui.job_line(7, attachable=attachable)]) == line
    assert after_listing([]).startswith("autobrrr run")


@pytest.mark.parametrize(
    ("status", "pid", "line"),
    [("fail", 7, "mend it"), ("warn", 7, "autobrrr diagnose 7"), ("ok", None, "autobrrr ls")],
)
def test_checks_lead_to_the_mend(status: Literal["ok", "warn", "fail"], pid: int | None, line: str) -> None:
    checks = [
        DoctorCheck(name="a", status="ok", detail="", fix=""),
        DoctorCheck(name="b", status=status, detail="", fix="mend it"),
    ]
    assert after_checks(checks, pid) == line


def test_a_run_says_what_it_begins_with() -> None:
    chosen = Recipe(source="fast.toml", remedies=(advice("gc.freeze", "live"),))
    said = begun_with(chosen, {"--batch-size": 32}, {"OMP_NUM_THREADS": "1"})
    assert said == "recipe fast.toml: flags --batch-size 32; variables OMP_NUM_THREADS=1; remedies gc.freeze"
    assert begun_with(Recipe(), {}, {}) is None
    assert begun_with(chosen, {}, {}, left_out={"gc.freeze": "not here"}) is None


def test_at_its_end_it_says_how_fast_it_was_beside_the_evidence() -> None:
    evidence = Measured(
        speedup=1.56, interval=(1.44, 1.69), baseline_ns=5.37e6, best_ns=3.44e6, measured_on="2 cores"
    )
    assert speed_reached({"median": 3_500_000, "count": 2000}, evidence) == (
        "this run: 3.50 ms a step, the median of 2000; "
        "the recipe was measured at 5.37 ms → 3.44 ms, 1.56x [1.44–1.69] on 2 cores"
    )
    live = msgspec.structs.replace(evidence, at_least=True)
    assert "at least 1.56x [1.44" in (speed_reached({"median": 3_500_000, "count": 2000}, live) or "")
    bare = speed_reached({"median": 3_500_000, "count": 9}, None)
    assert bare == "this run: 3.50 ms a step, the median of 9"
    assert speed_reached({"median": True}, evidence) is None
    assert speed_reached(None, evidence) is None


def test_after_a_proof_comes_what_would_decide_it_or_what_it_means() -> None:
    assert after_proof(proof()) == "autobrrr explain proven"
    assert after_proof(refused()) == "autobrrr explain less_evaluation"
    speed = proof().speed
    unclear = msgspec.structs.replace(speed, interval=(0.9, 1.1))
    said = after_proof(proof(verdict="not_proven", speed=unclear, elapsed_ns=120 * 10**9))
    assert said.startswith("the same command with --for 8m")
