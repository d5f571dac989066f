"""The planted jobs of a CUDA machine: none is named wrongly, and all of them live on.

Confirmation of the truths and the table: `make gpu`. An abstention is no failure here; the table counts them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.planted.case import Case
from benchmarks.planted.confirm import Confirmer
from benchmarks.planted.diagnosed import diagnose
from benchmarks.planted.matrix import score
from benchmarks.planted.results import ROOT
from benchmarks.planted.tables.gpu_cases import GPU_CASES
from support.training import environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(ROOT)
    return environment(tmp_path)


@pytest.mark.parametrize("case", GPU_CASES, ids=lambda case: case.name)
def test_a_planted_job_is_named_rightly_or_not_at_all_and_lives_on(case: Case, told: dict[str, str]) -> None:
    row = diagnose(case, told, for_s=15)
    assert row["lives_on"]
    assert row["left_behind"] == []
    assert score(row) in ("right", "abstained"), row.get("reason") or row.get("failed")


@pytest.mark.parametrize(
    "name", ["deep-tiny-mlp", "slow-items", "sync-empty-cache", "pointwise-half-gib", "wide-mlp"]
)
def test_one_truth_of_each_kind_stands_up_to_the_stopwatch(name: str, told: dict[str, str]) -> None:
    case = next(case for case in GPU_CASES if case.name == name)
    row = Confirmer(told).confirm(case)
    assert row["holds"], row["figure"]
