"""Each regime, planted at 90 % of a step or more, is named: a `diagnose` that always abstains fails here.

`communication` is in test_rank_sessions.py; `sync` needs a GPU (tests/gpu).
"""

from pathlib import Path

import pytest

from benchmarks.planted.case import Case
from benchmarks.planted.diagnosed import diagnose
from benchmarks.planted.matrix import score
from benchmarks.planted.tables.cases import CASES
from support.day_cases import by_day
from support.training import environment

pytestmark = [pytest.mark.integration, pytest.mark.quiet, pytest.mark.timeout(400)]

TRIES = 4  # others may take the machine from a job, and nothing is said of it then
KNOWN = {case.name: case for case in CASES}
PLANTED = [
    KNOWN["many-small-adamw"],
    Case(
        name="two sleeping workers",
        job="loader",
        truth="input",
        why="each batch takes its worker 64 ms, all else under a millisecond",
        knobs={"asleep_us": 4000.0, "workers": 2},
    ),
    Case(
        name="counting",
        job="host",
        truth="host",
        why="counts of classes over dicts, 100,000 a step",
        knobs={"kind": "metrics", "turns": 100_000},
    ),
    KNOWN["pointwise-8-mib"],
    KNOWN["wide-mlp"],
    KNOWN["tiny-batched-matmuls"],
]


BY_DAY = ("overhead", "input", "host", "compute")


@pytest.mark.parametrize(
    "case", by_day(PLANTED, lambda case: case.truth in BY_DAY), ids=lambda each: each.truth
)
def test_what_is_planted_is_named_and_nothing_else(case: Case, tmp_path: Path) -> None:
    rows = []
    for _ in range(TRIES):
        rows.append(diagnose(case, environment(tmp_path), for_s=25))
        assert score(rows[-1]) in ("right", "abstained"), rows[-1]
        assert rows[-1]["left_behind"] == []
        if score(rows[-1]) == "right":
            return
    pytest.fail(f"never named: {[(row['verdict'], row['reason'], row['load']) for row in rows]}")
