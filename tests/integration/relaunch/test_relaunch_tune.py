"""`tune -- CMD` as a user calls it, on a script whose best flags are known by construction."""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import pytest

from autobrrr import recipe
from support import relaunch, training

pytestmark = pytest.mark.integration


def tune(tmp_path: Path, *words: str, script: tuple[str, ...] = ()) -> training.Outcome:
    if not (tmp_path / "user").exists():
        relaunch.script(tmp_path / "user")
    return relaunch.tuned(tmp_path, *words, command=(sys.executable, "train.py", *script))


def test_the_faster_flag_is_found_confirmed_and_written_as_a_recipe(tmp_path: Path) -> None:
    relaunch.script(tmp_path / "user")
    before = relaunch.fingerprint(tmp_path / "user")
    file, page = tmp_path / "r.toml", tmp_path / "r.html"
    kept, walled = tmp_path / "kept", not relaunch.no_walls(tmp_path)
    done = tune(
        tmp_path,
        *("--param", "--num-workers=int:0..1"),
        *("--allow", "changes-training", "--allow-writes" if not walled else "--json", "--json"),
        *("--recipe", str(file), "--html", str(page)),
        *(("--keep-output", "../kept") if walled else ()),
        script=("--mode", "slow", "--write", "train.log"),
    )
    assert done.code == 0, done.stderr
    found = done.json
    assert found["objective"] == "step_ns"
    assert found["kept"] == ["--num-workers=1"]
    # 1.5 x 4.8 ms a step, and 1 ms less: 1.16; sleeping a little longer than asked brings it down.
    low, high = found["interval"]  # type: ignore[misc]
    assert 1.0 < low <= found["speedup"] <= high < 1.3
    assert [each["outcome"] for each in found["trials"]] == ["kept"]  # type: ignore[attr-defined]
    loaded = recipe.load(file)
    assert dict(loaded.args) == {"--num-workers": 1}
    assert loaded.match.script == "train.py"
    assert loaded.evidence.interval == (low, high)
    assert "<svg" in page.read_text()
    assert "--num-workers=1" in page.read_text()
    if walled:
        assert relaunch.fingerprint(tmp_path / "user") == before
        assert (kept / str(tmp_path / "user" / "train.log").lstrip("/")).read_text() == "trained\n"


def test_the_recipe_of_a_variable_is_applied_by_run(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text(recipe.dump(recipe.Recipe(env={"MALLOC_ARENA_MAX": "3"}, args={"--steps": 1})))
    (tmp_path / "show.py").write_text(
        "import argparse, os\np = argparse.ArgumentParser()\np.add_argument('--steps')\n"
        "print(os.environ['MALLOC_ARENA_MAX'], p.parse_args().steps)\n"
    )
    done = training.autobrrr(
        tmp_path, "run", "--recipe", str(file), "--", sys.executable, str(tmp_path / "show.py")
    )
    assert done.stdout == "3 1\n", done.stderr


@pytest.mark.parametrize(
    ("words", "script", "code", "says"),
    [
        (["--param", "--nope=int:1..2"], (), 2, "the script does not have this flag"),
        (["--param", "gc.freeze", "--no-network", "--allow-writes"], (), 2, "a wall of the sandbox"),
        ([], (), 2, "no terminal to ask on"),
        (["--param", "gc.freeze", "--allow-writes"], ("--unknown",), 2, "unrecognized arguments"),
        (["--param", "gc.freeze", "--allow-writes"], ("--most", "1"), 1, "out of memory"),
        (["--param", "gc.freeze", "--allow-writes"], ("--steps", "0"), 1, "without a training step"),
    ],
)
def test_what_can_t_be_done_is_one_clear_error(
    words: list[str], script: tuple[str, ...], code: int, says: str, tmp_path: Path
) -> None:
    done = tune(tmp_path, *words, script=script)
    assert done.code == code, done.stderr
    assert says in done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("autobrrr:   | ")]
    assert not any("Traceback (most recent call last)" in line for line in said)
    assert sum(line.startswith("autobrrr: error: ") for line in said[-2:]) == 1
    assert done.stdout == ""
    assert not list((tmp_path / "run").glob("autobrrr/study-*"))


def test_a_batch_beyond_the_limit_of_addresses_ends_out_of_memory(tmp_path: Path) -> None:
    holds = "held = bytearray(args.batch_size * (40 << 20))\noptimizer = Plain"
    relaunch.script(tmp_path / "user", relaunch.SCRIPT.replace("optimizer = Plain", holds))
    done = relaunch.tuned(
        tmp_path,
        *("--param", "--batch-size=choice:4,8,128", "--allow", "changes-training"),
        *("--allow-writes", "--json"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
    )
    assert done.code == 0, done.stderr
    found = json.loads(done.stdout)
    smaller, larger = found["trials"]
    assert (smaller["remedy"], smaller["outcome"]) == ("--batch-size=4", "undone")
    assert smaller["memory_bytes"] > 1 << 20
    assert (larger["remedy"], larger["outcome"]) == ("--batch-size=128", "refused")
    assert larger["why"].startswith("oom: out of memory")
    assert larger["predicted_memory_bytes"] > 1 << 30


def test_a_study_that_is_killed_leaves_nothing_and_goes_on_where_it_was(tmp_path: Path) -> None:
    relaunch.script(tmp_path / "user")
    words = ("--param", "--num-workers=int:0..2", "--allow-writes", "--json")
    first = relaunch.tuning(tmp_path, *words)
    said = iter(first.stderr.readline, "")
    assert any("--num-workers=1: " in line and "x [" in line for line in said)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    deadline = time.monotonic() + 5
    while relaunch.alive(tmp_path / "run") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert relaunch.alive(tmp_path / "run") == []
    second = relaunch.tuned(tmp_path, *words)
    assert second.code == 0, second.stderr
    assert "resuming a study that has 1 trials" in second.stderr
    assert second.json["kept"] == ["--num-workers=2"]
    assert not list((tmp_path / "run").glob("autobrrr/study-*"))
