"""Workers that share a study through a real PostgreSQL server, all at once; one is killed."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from autobrrr import recipe
from autobrrr.relaunch.search import study_storage
from autobrrr.relaunch.search.point_search import LET_GO
from support import relaunch, training
from support.outside import postgres

pytestmark = [pytest.mark.integration, pytest.mark.nightly]
pytest.importorskip("psycopg", reason="the driver of PostgreSQL is not installed")

# A worker as users start it, but one that is soon taken for dead and sooner sure.
WORKER = """
import sys
from autobrrr.cli import main
from autobrrr.relaunch.search import study_storage as storage
from autobrrr.relaunch.study import timed_turns
storage.BEAT_S, storage.GRACE_S = 1, 6
timed_turns.DUEL_NS, timed_turns.SURE = 1_000_000_000, 0.1
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    found = postgres.binaries()
    if found is None:
        pytest.skip("no PostgreSQL server is installed")
    with postgres.server(found) as started:
        yield started


def study(url: str, name: str) -> optuna.Study:
    """As Optuna Dashboard and anybody else opens it."""
    place = study_storage.address(url).render_as_string(hide_password=False)
    return optuna.load_study(study_name=name, storage=place)


def results(trials: list[FrozenTrial]) -> list[str]:
    return [each.user_attrs["point"] for each in trials if each.state == TrialState.COMPLETE]


@pytest.fixture
def temporary() -> Iterator[str]:
    """A short folder for what a killed worker's trials would leave."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def test_of_three_workers_one_is_killed_yet_each_point_counts_once(
    server: postgres.Server, tmp_path: Path, temporary: str
) -> None:
    url = server.url(server.new_database())  # empty: all three make its tables
    relaunch.script(tmp_path / "user")
    root = Path(__file__).resolve().parents[3]
    ours = training.environment(tmp_path) | {"TMPDIR": temporary}
    ours |= {"PYTHONPATH": f"{root}:{relaunch.STANDIN}", "PYTHONDONTWRITEBYTECODE": "1"}
    words = ["tune", "--storage", url, "--study", "three", "--param", "--slowness=choice:2,3,1,4"]
    words += ["--allow", "changes-training", "--allow-writes", "--json"]
    workers = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", WORKER, *words, "--recipe", str(tmp_path / f"{i}.toml")),
                *("--", sys.executable, "train.py", "--slowness", "2"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(tmp_path / f"{i}.err").open("w"),
            text=True,
            env=ours,
            cwd=tmp_path / "user",
        )
        for i in range(3)
    ]
    try:
        killed = kill_one_that_measures(workers, url)
        said = {each.pid: each.communicate(timeout=150)[0] for each in workers}
    finally:
        for each in workers:
            each.kill()
            each.wait()
    told = "".join((tmp_path / f"{i}.err").read_text() for i in range(3))
    living = [each for each in workers if each.pid != killed]
    assert [each.returncode for each in living] == [0, 0], told
    trials = study(url, "three").trials
    points = [f"--slowness={level}" for level in (1, 3, 4)]
    assert set(results(trials)) == set(points)
    its = [each for each in trials if each.user_attrs.get("pid") == killed and not each.values]
    lost = [each for each in its if LET_GO not in each.user_attrs]  # else another worker was sooner
    assert [each.state for each in lost] == [TrialState.FAIL]
    again = [each for each in trials if each.params == lost[0].params and each.state == TrialState.COMPLETE]
    assert len(again) == 1
    by_another = set()
    for each in living:
        found = json.loads(said[each.pid])
        assert found["kept"] == ["--slowness=1"]
        assert sorted(trial["remedy"] for trial in found["trials"]) == sorted(points)
        by_another |= {trial["remedy"] for trial in found["trials"] if "measured on" in trial["why"]}
        number = workers.index(each)
        assert dict(recipe.load(tmp_path / f"{number}.toml").args) == {"--slowness": 1}
    assert sorted(by_another) == sorted(points)  # of two workers one did not measure it, whoever was faster
    kept = [file for file in tmp_path.rglob("*") if file.is_file() and not file.is_symlink()]
    assert not [file for file in kept if b"s3cret" in file.read_bytes()]
    assert "s3cret" not in "".join(text or "" for text in said.values())


def kill_one_that_measures(workers: list[subprocess.Popen[str]], url: str) -> int:
    """Once two are under way; returns whom."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert all(each.poll() is None for each in workers)
        try:
            running = [each for each in study(url, "three").trials if each.state == TrialState.RUNNING]
        except (KeyError, optuna.exceptions.StorageInternalError):
            running = []  # not made yet
        pids = {each.user_attrs.get("pid") for each in running} - {None}
        if len(pids) > 1:
            pid = min(pids)
            next(each for each in workers if each.pid == pid).kill()
            return int(pid)
        time.sleep(0.1)
    raise AssertionError("no two workers measured at a time")
