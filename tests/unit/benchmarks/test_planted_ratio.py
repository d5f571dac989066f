"""Twice the batch: what was foretold against what was really run, and which figures are not shown."""

from __future__ import annotations

from typing import Any

from benchmarks.planted.ratio import KINDS, markdown


def row(case: str, told: float | None, truth: float, why: str | None = None) -> dict[str, Any]:
    return {
        "case": case,
        "batch": 8,
        "step_ns": 2e6,
        "truth": truth,
        "truth_range": [truth, truth],
        "told": told,
        "told_interval": None if told is None else [told - 0.1, told + 0.1],
        "why_not": why,
        "error": None if told is None else told / truth - 1,
        "load": {"foreign_cores": 0.05},
    }


def test_the_six_public_kinds_are_there_and_all_can_double_their_batch() -> None:
    assert {"mlp", "cnn-batchnorm", "lstm", "transformer", "gan", "dlrm"} <= {case.name for case in KINDS}
    assert len({case.name for case in KINDS}) == len(KINDS)


def test_the_table_counts_what_is_shown_and_what_is_within_a_tenth() -> None:
    text = markdown([row("a", 1.5, 1.6), row("b", 1.5, 1.0), row("c", None, 1.2, "not linear")], {"cores": 2})
    assert "Shown in 2 of 3; within 10% of the truth in 1." in text
    assert "| a | 8 | 2.00 | 1.50 (1.40 to 1.60) | 1.60 (1.60 to 1.60) | -6.2% | 0.05 |" in text
    assert "| c | 8 | 2.00 | not linear | 1.20" in text
