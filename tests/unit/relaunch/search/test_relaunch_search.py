"""The search over simulated scripts: small spaces in full, large ones by a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autobrrr.relaunch.search.point_search import Search, study_name
from autobrrr.relaunch.search.search_space import Point, Result, Space
from support.relaunch import parameter

SMALL = Space(parameters=(parameter("--batch-size", 5, 1), parameter("--workers", 3)))
LARGE = Space(
    parameters=(parameter("--batch-size", 6, 1), parameter("--workers", 3), parameter("--threads", 2))
)


def speed(point: Point) -> float:
    return -0.05 * sum((level - 2) ** 2 for level in point) + 0.1 * point[0]


def run(search: Search, measure: Callable[[Point], Result], most: int = 1000) -> list[Point]:
    asked: list[Point] = []
    while len(asked) < most and (point := search.ask()) is not None:
        asked.append(point)
        search.tell(measure(point))
    return asked


def measured(point: Point) -> Result:
    return Result(point=point, value=speed(point), kind="measured")


def test_a_small_space_is_tried_in_full() -> None:
    search = Search(SMALL)
    asked = run(search, measured)
    assert search.exhaustive
    assert sorted(asked) == sorted(SMALL.points())
    assert search.best.point == max(SMALL.points(), key=speed)


def test_a_large_space_is_searched_at_a_quarter_of_its_points() -> None:
    search = Search(LARGE, seed=3)
    asked = run(search, measured)
    assert not search.exhaustive
    assert len(asked) == len(set(asked)) <= round(0.25 * len(LARGE.points()))
    assert speed(search.best.point) > speed(LARGE.base)


def test_a_batch_that_ran_out_of_memory_is_never_exceeded() -> None:
    def with_limit(point: Point) -> Result:
        if point[0] >= 3:
            return Result(point=point, value=None, kind="oom", why="out of memory")
        return measured(point)

    search = Search(SMALL)
    asked = run(search, with_limit)
    tried = [point[0] for point in asked if point[0] >= 3]
    assert tried == [3]
    assert search.best.point[0] < 3


def test_what_fails_is_no_candidate_and_the_study_goes_on() -> None:
    search = Search(SMALL)
    asked = run(search, lambda point: Result(point=point, value=None, kind="crash", why="odd"))
    assert len(asked) == len(SMALL.points())
    assert search.best is None


def test_a_study_has_one_name_on_all_machines_and_another_where_its_results_do_not_hold(
    tmp_path: Path,
) -> None:
    here, there = tmp_path / "a" / "job", tmp_path / "b" / "job"
    for folder in (here, there):
        folder.mkdir(parents=True)
        (folder / "train.py").write_text("print(1)\n")
    script, module = ["/usr/bin/python", "train.py", "--x"], ["python", "-m", "train"]
    name = study_name(script, here, SMALL)
    assert name == study_name(["/opt/env/bin/python", str(there / "train.py"), "--x"], there, SMALL)
    others = {study_name(["python", "train.py", "--y"], here, SMALL), study_name(script, here, LARGE)}
    others |= {study_name(script, here, SMALL, [place]) for place in ("this machine", "another")}
    others |= {study_name(module, here, SMALL)}
    (here / "train.py").write_text("print(2)\n")
    others |= {study_name(script, here, SMALL), study_name(module, here, SMALL)}
    assert len({name, *others}) == 8


def test_the_number_of_trials_is_kept() -> None:
    assert len(run(Search(SMALL, trials=3), measured)) == 3


def test_a_solid_gain_wins_over_a_higher_one_that_may_be_luck() -> None:
    lucky, solid = SMALL.points()[:2]
    search = Search(SMALL)
    results = {
        lucky: Result(point=lucky, value=0.5, low=-0.1, kind="measured"),
        solid: Result(point=solid, value=0.3, low=0.28, kind="measured"),
    }
    run(search, results.__getitem__, most=2)
    assert search.best == results[solid]
