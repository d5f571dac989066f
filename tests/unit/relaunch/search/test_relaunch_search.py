"""The search over simulated scripts: small spaces in full, large ones by a model, cut off and taken up
again."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest

from autobrrr.relaunch.search.point_search import Search
from autobrrr.relaunch.search.search_space import Point, Result, Space
from autobrrr.relaunch.search.study_journal import Busy, study_file
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
    assert search.best is not None
    assert search.best.point == max(SMALL.points(), key=speed)


def test_a_large_space_is_searched_at_a_quarter_of_its_points() -> None:
    search = Search(LARGE, seed=3)
    asked = run(search, measured)
    assert not search.exhaustive
    assert len(asked) == len(set(asked)) <= round(0.25 * len(LARGE.points()))
    assert search.best is not None
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
    assert search.best is not None
    assert search.best.point[0] < 3


def test_what_fails_is_no_candidate_and_the_study_goes_on() -> None:
    search = Search(SMALL)
    asked = run(search, lambda point: Result(point=point, value=None, kind="crash", why="odd"))
    assert len(asked) == len(SMALL.points())
    assert search.best is None


def test_a_study_that_was_cut_off_goes_on_and_one_that_is_finished_begins_anew(tmp_path: Path) -> None:
    command = ["python", "train.py"]
    file = study_file(tmp_path, command, tmp_path, SMALL, {})
    first = Search(SMALL, journal=file)
    asked = run(first, measured, most=5)
    assert first.ask() is not None  # and is killed while that one runs
    first.close()
    assert study_file(tmp_path, command, tmp_path, SMALL, {}) == file
    second = Search(SMALL, journal=file)
    assert [result.point for result in second.results] == asked
    rest = run(second, measured)
    assert sorted([*asked, *rest]) == sorted(SMALL.points())
    second.finish()
    second.close()
    third = Search(SMALL, journal=study_file(tmp_path, command, tmp_path, SMALL, {}))
    assert third.results == []


def test_a_study_cut_off_before_its_trial_was_asked_for_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    def killed(*args: object, **kwargs: object) -> object:
        raise Killed

    file = study_file(tmp_path, ["python"], tmp_path, SMALL, {})
    first = Search(SMALL, journal=file)
    run(first, measured, most=2)
    with monkeypatch.context() as patched:
        patched.setattr(optuna.study.Study, "ask", killed)
        with pytest.raises(Killed):
            first.ask()
    first.close()
    second = Search(SMALL, journal=file)
    assert len(second.results) == 2
    run(second, measured)
    assert sorted(result.point for result in second.results) == sorted(SMALL.points())


def test_a_study_that_another_run_has_is_left_alone_until_that_one_ends(tmp_path: Path) -> None:
    file = study_file(tmp_path, ["python"], tmp_path, SMALL, {})
    first = Search(SMALL, journal=file)
    point = first.ask()
    assert point is not None
    with pytest.raises(Busy):
        Search(SMALL, journal=file)
    assert first.tell(measured(point))
    first.close()
    assert [result.point for result in Search(SMALL, journal=file).results] == [point]


@pytest.mark.parametrize("words", [["python", "train.py"], ["python", "-m", "train"]])
def test_what_other_results_hold_for_is_another_study(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")

    def file(space: Space = SMALL, **environment: str) -> Path:
        return study_file(tmp_path, words, tmp_path, space, environment)

    first = file()
    assert file(HOME="/elsewhere") == first
    given = Space(parameters=(parameter("--batch-size", 5, 2), parameter("--workers", 3)))
    assert len({first, file(given), file(CUDA_VISIBLE_DEVICES="0"), file(CUDA_VISIBLE_DEVICES="1")}) == 4
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(socket, "gethostname", lambda: "another")
        assert file() != first
    script.write_text("print(2)\n")
    assert file() != first
    script.unlink()
    assert file() != first


def test_a_journal_that_can_t_be_read_is_set_aside(tmp_path: Path) -> None:
    file = study_file(tmp_path, ["python"], tmp_path, SMALL, {})
    file.write_text("no journal\n")
    assert run(Search(SMALL, journal=file), measured, most=1)
    assert [each.read_text() for each in file.parent.glob("*.finished")] == ["no journal\n"]


def test_the_number_of_trials_is_kept() -> None:
    assert len(run(Search(SMALL, trials=3), measured)) == 3


def test_a_solid_gain_wins_over_a_higher_one_that_may_be_luck(tmp_path: Path) -> None:
    lucky, solid = SMALL.points()[:2]
    file = study_file(tmp_path, ["python"], tmp_path, SMALL, {})
    search = Search(SMALL, journal=file)
    results = {
        lucky: Result(point=lucky, value=0.5, low=-0.1, kind="measured"),
        solid: Result(point=solid, value=0.3, low=0.28, kind="measured"),
    }
    run(search, results.__getitem__, most=2)
    assert search.best == results[solid]
    search.close()
    again = Search(SMALL, journal=file)
    assert again.best == results[solid]
