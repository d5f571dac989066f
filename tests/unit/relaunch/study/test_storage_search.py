"""Workers that share a study, simulated: each point is measured once, whoever comes, dies or comes late."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest
import sqlalchemy
from optuna.trial import TrialState

from autobrrr.errors import UsageError
from autobrrr.relaunch.search import point_search, study_storage
from autobrrr.relaunch.search.point_search import Search
from autobrrr.relaunch.search.search_space import Point, Result, Space
from support.relaunch import parameter

pytestmark = pytest.mark.integration  # real SQLite files, and threads that wait for each other

Join = Callable[..., Search]


SMALL = Space(parameters=(parameter("--batch-size", 3, 1), parameter("--workers", 2)))
LARGE = Space(
    parameters=(parameter("--batch-size", 6, 1), parameter("--workers", 3), parameter("--threads", 2))
)


def measured(point: Point) -> Result:
    value = 0.1 * point[0] - 0.05 * point[1]
    return Result(point=point, value=value, low=value - 0.01, kind="measured", why="so much")


@pytest.fixture(scope="module", autouse=True)
def hasty() -> Iterator[None]:
    """Databases that do not wait for the disk."""

    def connected(wire: sqlite3.Connection, _: object) -> None:
        wire.execute("pragma synchronous = off")

    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", connected)
    yield
    sqlalchemy.event.remove(sqlalchemy.Engine, "connect", connected)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database with Optuna's tables, made once."""
    file = tmp_path_factory.mktemp("empty") / "study.db"
    study_storage.connect(study_storage.address(f"sqlite:///{file}")).close()
    return file.read_bytes()


@pytest.fixture
def file(tmp_path: Path, empty: bytes) -> Path:
    (tmp_path / "study.db").write_bytes(empty)
    return tmp_path / "study.db"


@pytest.fixture
def join(file: Path) -> Join:
    """Takes part as one more worker."""
    count = iter(range(1, 100))
    opened = study_storage.connect(study_storage.address(f"sqlite:///{file}"))

    def worker(space: Space = SMALL, trials: int | None = None, **more: object) -> Search:
        usual = {"storage": opened, "name": "s", "worker": (f"machine{next(count)}", 7)}
        return Search(space, trials=trials, **{**usual, **more})  # type: ignore[arg-type]

    return worker


def silent_for(file: Path, seconds: int) -> None:
    """As if no worker had said for so long that it lives."""
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    with engine.begin() as wire:
        back = sqlalchemy.text("update trial_heartbeats set heartbeat = datetime(heartbeat, :by)")
        wire.execute(back, {"by": f"-{seconds} seconds"})
    engine.dispose()


def trials_of(file: Path, name: str = "s") -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name=name, storage=f"sqlite:///{file}").trials


def counted(file: Path) -> list[Point]:
    """The points of all trials that hold a result, as anybody with Optuna sees them."""
    return [tuple(trial.params.values()) for trial in trials_of(file) if trial.state == TrialState.COMPLETE]


def go_on(workers: list[Search]) -> None:
    """All measure in turn, each with a trial open while the others ask."""
    asked = {i: worker.ask() for i, worker in enumerate(workers)}
    while any(point is not None for point in asked.values()):
        for i, worker in enumerate(workers):
            if (point := asked[i]) is not None:
                worker.tell(measured(point))
                asked[i] = worker.ask()


def test_three_workers_measure_each_point_once_and_all_know_all_results(join: Join, file: Path) -> None:
    workers = [join(), join(), join()]
    go_on(workers)
    assert sorted(counted(file)) == sorted(SMALL.points())
    for worker in workers:
        assert worker.ask() is None
        assert worker.elsewhere == 0
        assert sorted(result.point for result in worker.results) == sorted(SMALL.points())
        assert worker.best is not None
        assert worker.best.point == (2, 0)
    assert {trial.user_attrs.get("host") for trial in trials_of(file)} >= {"machine1", "machine2", "machine3"}
    assert {result.origin for result in workers[0].results} == {
        "",
        "measured on machine2",
        "measured on machine3",
    }


def test_the_number_of_trials_is_that_of_all_workers(join: Join, file: Path) -> None:
    go_on([join(trials=3), join(trials=3)])
    assert len(counted(file)) == 3


def test_a_large_space_is_searched_together_by_the_sampler(join: Join, file: Path) -> None:
    workers = [join(LARGE, trials=6), join(LARGE, trials=6)]  # one of them by a model of the first five
    go_on(workers)
    assert len(counted(file)) == len(set(counted(file))) == 6
    assert not workers[0].exhaustive
    assert not [trial for trial in trials_of(file) if trial.state == TrialState.FAIL]


def test_the_trial_of_a_dead_worker_goes_to_another_one_and_counts_once(join: Join, file: Path) -> None:
    dead, living = join(), join()
    lost = dead.ask()
    assert lost is not None
    points = []
    while (point := living.ask()) is not None:
        points.append(point)
        living.tell(measured(point))
    assert living.elsewhere == 1
    assert lost not in points
    silent_for(file, study_storage.GRACE_S + 1)
    assert living.ask() == lost
    # The worker that was taken for dead comes back with its result: it is too late.
    dead.tell(measured(lost))
    assert lost not in [result.point for result in dead.results]
    living.tell(measured(lost))
    assert sorted(counted(file)) == sorted(SMALL.points())
    again = [trial for trial in trials_of(file) if tuple(trial.params.values()) == lost]
    assert [(each.state, each.user_attrs["host"]) for each in again] == [
        (TrialState.FAIL, "machine1"),
        (TrialState.COMPLETE, "machine2"),
    ]


def test_a_point_over_which_workers_die_is_given_up(join: Join, file: Path) -> None:
    for _ in range(point_search.MOST_RETRIES + 1):
        assert join(trials=1).ask() == SMALL.points()[0]
        silent_for(file, study_storage.GRACE_S + 1)
    last = join(trials=1)
    assert last.ask() is None
    assert [(result.point, result.kind) for result in last.results] == [(SMALL.points()[0], "crash")]
    assert "died, 3 times" in last.results[0].why


def test_a_worker_that_leaves_gives_its_trial_to_another_one_at_once(join: Join) -> None:
    for _ in range(point_search.MOST_RETRIES + 1):
        leaving = join()
        point = leaving.ask()
        leaving.close()
    assert join().ask() == point


def test_who_comes_later_takes_the_results_over_or_adds_trials(join: Join, file: Path) -> None:
    go_on([join(trials=2)])
    late = join(trials=2)
    assert len(late.results) == 2
    assert late.ask() is None
    go_on([join(trials=4)])
    assert len(counted(file)) == 4


def test_what_failed_is_known_to_all_and_a_larger_batch_not_tried(join: Join, file: Path) -> None:
    first, second = join(), join()
    point = first.ask()
    while point is not None and point[0] != 2:
        first.tell(measured(point))
        point = first.ask()
    assert point is not None
    first.tell(Result(point=point, value=None, kind="oom", why="out of memory"))
    larger = optuna.load_study(study_name="s", storage=f"sqlite:///{file}")
    larger.enqueue_trial({"--batch-size": 2, "--workers": 1 - point[1]})  # of a worker that has died
    go_on([first, second])
    assert [result.point for result in second.results if result.point[0] == 2] == [point]
    assert {result.kind for result in second.results} == {"measured", "oom"}


@pytest.mark.parametrize("stays", [True, False])
def test_a_study_that_is_over_stays_or_makes_room_for_the_next_run(join: Join, stays: bool) -> None:
    first = join(stays=stays, worker=("machine1", 1 << 30))
    point = first.ask()
    assert point is not None
    first.tell(Result(point=point, value=0.5, low=-0.1, kind="measured"))
    assert first.ask() is not None  # and is killed while that one runs
    second = join(stays=stays)
    assert second.elsewhere == stays
    assert [(each.point, each.low) for each in second.results] == [(point, -0.1)]
    second.finish()
    second.close()
    assert len(join(stays=stays).results) == stays


def test_another_space_under_the_same_name_is_refused(join: Join, file: Path) -> None:
    join()
    with pytest.raises(UsageError, match="has another search space"):
        join(LARGE)
    optuna.create_study(study_name="mine", storage=f"sqlite:///{file}").enqueue_trial({"x": 1})
    with pytest.raises(UsageError, match="has another search space"):
        join(name="mine")
