"""On a real job, code that only its author can change is found in what runs, with its line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.training import TrainingJob, autobrrr

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_a_loop_that_accumulates_is_advised_larger_micro_batches(
    job: Callable[..., TrainingJob], tmp_path: Path
) -> None:
    target = job("accumulate")
    found = autobrrr(tmp_path, "diagnose", str(target.pid), "--json", "--no-probe").json
    assert found["anatomy"]["backwards_per_step"] == 4
    edits = {one["remedy"]: one for one in found["advice"] if one["reach"] == "edit"}
    assert "batch.accumulation" in edits, found["advice"]
    assert "not possible on the running job" in edits["batch.accumulation"]["why"]
    assert target.alive()


def test_a_job_that_makes_gradients_for_nothing_is_told_where(
    job: Callable[..., TrainingJob], tmp_path: Path
) -> None:
    target = job("gan")
    found = autobrrr(tmp_path, "diagnose", str(target.pid), "--json", "--no-probe").json
    assert "gan.py:" in {one["remedy"]: one["why"] for one in found["advice"]}["edit.freeze_meanwhile"]
    assert target.alive()
