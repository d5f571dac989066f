"""Kernel-bound jobs, live: memory and compute are told apart or not named, and the work is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.training import TrainingJob, autobrrr

pytestmark = [
    pytest.mark.integration,
    pytest.mark.quiet,
    pytest.mark.nightly,
    pytest.mark.timeout(900),
]


@pytest.mark.parametrize(
    ("kind", "regime", "rival"), [("pointwise", "memory", "compute"), ("matmul", "compute", "memory")]
)
def test_a_kernel_bound_job_gets_its_regime_or_none_and_trains_on_to_the_same_bits(
    kind: str, regime: str, rival: str, job: Callable[..., TrainingJob], tmp_path: Path
) -> None:
    attached = job(kind)
    found = autobrrr(tmp_path, "diagnose", str(attached.pid), "--json", "--no-probe", "--for", "20s")
    assert found.code == 0, found.stderr
    said = found.json
    assert said["regime"] in (regime, "mixed", "unknown"), said["reason"]
    if said["shares"][regime] is not None:
        assert said["shares"][regime] > (said["shares"][rival] or 0.0), said["shares"]
    if said["regime"] == regime and not said["provisional"]:
        assert sum(evidence["says"] == regime for evidence in said["evidence"]) >= 2
    trained = attached.finish()
    assert trained == job(kind, "--steps", str(trained.steps)).finish(120)
