"""The table of planted cases is whole: every kind, a reason for every truth, a script behind every name."""

import ast
import importlib.util
from functools import cache
from pathlib import Path

from benchmarks.planted.case import TRUTHS, Case
from benchmarks.planted.held_out import HELD_OUT
from benchmarks.planted.tables.cases import CASES
from benchmarks.planted.tables.gpu_cases import GPU_CASES

ALL = [*CASES, *GPU_CASES, *HELD_OUT]


@cache
def knobs_of(module: str) -> set[str]:
    """The knobs that a script declares, read from its source without importing torch."""
    spec = importlib.util.find_spec(module)
    assert spec.origin is not None
    for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "planted_job":
            return {str(keyword.arg) for keyword in node.keywords}
    raise AssertionError(f"{module} declares no knobs")


def test_forty_cases_and_more_are_planted_and_no_name_stands_twice() -> None:
    assert len(CASES) >= 40
    for table in (CASES, GPU_CASES, HELD_OUT):
        assert len({case.name for case in table}) == len(table)


def test_every_regime_of_a_cpu_is_planted_and_mixtures_and_a_crowd_too() -> None:
    assert {case.truth for case in CASES} == set(TRUTHS) - {"sync"}
    assert {case.truth for case in GPU_CASES} == {"overhead", "input", "sync", "memory", "compute"}


def test_a_case_says_why_it_is_true_and_turns_only_knobs_that_its_script_has() -> None:
    for case in ALL:
        assert case.truth in TRUTHS
        assert len(case.why.split()) >= 4
        turned = {*case.knobs, *(case.alone or {})} - {"threads"}
        assert turned <= knobs_of(case.module), case.name


def test_a_command_line_takes_the_case_s_knobs_and_what_replaces_them() -> None:
    case = Case(
        name="x", job="mlp", truth="memory", why="because", knobs={"batch": 2, "kind": "a"}, threads=2
    )
    assert case.words({"batch": 4}) == ["--batch", "4", "--kind", "a", "--threads", "2", "--device", "cpu"]
    assert case.environment()["OMP_NUM_THREADS"] == "2"
