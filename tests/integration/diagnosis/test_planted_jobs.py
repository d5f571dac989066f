"""Planted jobs as they are run: each one trains, times itself, is diagnosed, and leaves nothing."""

import json
import os
import sys
from pathlib import Path

import pytest

from benchmarks.planted.__main__ import main
from benchmarks.planted.case import Case
from benchmarks.planted.held_out import HELD_OUT
from benchmarks.planted.job_process import JobFailed, PlantedJob, timed
from benchmarks.planted.results import ROOT
from benchmarks.planted.tables.cases import CASES
from support.training import environment, ran

pytestmark = pytest.mark.integration

IN_ONE_PROCESS = """
import importlib, json, sys
for module, words in json.loads(sys.argv[1]):
    importlib.import_module(module).main([*words, "--hollow", "--steps", "4"])
    print("done", module, *words, flush=True)
"""
DEEP = Case(
    name="deep", job="mlp", truth="overhead", why="tiny layers", knobs={"depth": 4, "width": 8, "batch": 2}
)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(ROOT)
    return environment(tmp_path)


@pytest.mark.nightly
def test_every_case_trains_its_steps_on_hollow_data(told: dict[str, str]) -> None:
    alone = [case for case in (*CASES, *HELD_OUT) if case.job != "crowd"]
    once = {(case.module, *case.words({"threads": 1})) for case in alone}
    jobs = [(module, words) for module, *words in sorted(once)]
    done = ran([sys.executable, "-c", IN_ONE_PROCESS, json.dumps(jobs)], env=told, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("done") == len(jobs)


def test_a_job_times_its_own_sections_and_counts_its_work(told: dict[str, str]) -> None:
    found = timed(DEEP, told, seconds=0.2)
    assert found.steps >= 12
    assert sum(found.sections_ns.values()) == pytest.approx(found.step_ns)
    assert {"forward", "backward", "optimizer"} <= set(found.sections_ns)
    assert found.flops == 6 * 2 * 4 * 8 * 8 - 2 * 2 * 8 * 8


def test_a_job_that_cannot_train_says_so(told: dict[str, str]) -> None:
    broken = Case(name="b", job="mlp", truth="overhead", why="no such knob", knobs={"optimizer": "none"})
    with PlantedJob(broken, environment=told) as job, pytest.raises(JobFailed, match="KeyError"):
        job.wait_for_training()


def test_a_diagnosed_case_gives_a_row_and_is_not_run_again(
    told: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in told.items():
        monkeypatch.setitem(os.environ, name, value)
    words = ["run", "--only", "deep-tiny-mlp", "--for", "4", "--revision", "r", "--out", str(tmp_path)]
    main(words)
    main(words)
    rows = [
        json.loads(line)
        for line in (tmp_path / "planted-cpu-run.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert len(rows) == 1
    assert rows[0]["truth"] == "overhead"
    assert rows[0]["verdict"] in ("overhead", "mixed", "unknown")
    assert rows[0]["lives_on"]
    assert rows[0]["left_behind"] == []
    assert rows[0]["load"]["foreign_cores"] >= 0
    assert "| **overhead** |" in capsys.readouterr().out
    assert (tmp_path / "planted-cpu.md").exists()
