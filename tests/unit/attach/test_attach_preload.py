"""What `run` prepares: environment, folder, flags; and how preloaded agents are found and heard."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import stat
import sys
from pathlib import Path

import pytest

from autobrrr.attach.preload import preload_outcome, preloaded_agent
from support.machines.fake_proc import FakeProc

_spec = importlib.util.spec_from_file_location("preload_site", preloaded_agent.SITE)
site = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(site)


def test_the_environment_has_our_site_first_and_keeps_the_rest(tmp_path: Path) -> None:
    env = {"PYTHONPATH": "/a:/b", "HOME": "/h"}
    prepared = preloaded_agent.prepare(None, env, tmp_path / "run")
    assert prepared.environment["PYTHONPATH"].split(":") == [str(prepared.folder), "/a", "/b"]
    assert (prepared.folder / "sitecustomize.py").is_file()
    assert prepared.environment["HOME"] == "/h"
    assert stat.S_IMODE(prepared.folder.stat().st_mode) == 0o700
    prepared.remove()
    assert not prepared.folder.exists()


@pytest.mark.parametrize(
    ("words", "is_job"),
    [
        (["python", "train.py"], True),
        (["python", "-m", "pkg.train"], True),
        (["python", "train.py", "--launcher", "x", "torchrun"], True),
        (["python", "examples/multiprocessing/train.py"], True),
        (["python", "-c", "import multiprocessing, torch"], True),
        (["python", "train_inductor.py"], True),
        (["python", "/usr/bin/torchrun", "train.py"], False),
        (["python", "-m", "torch.distributed.run", "train.py"], False),
        (["python", "-c", "from multiprocessing.spawn import spawn_main", "--multiprocessing-fork"], False),
        (["python", "-c", "from multiprocessing.resource_tracker import main;main(3)"], False),
        (["python", "/site/torch/_inductor/compile_worker/__main__.py"], False),
    ],
)
def test_which_processes_arm_themselves(words: list[str], is_job: bool) -> None:
    assert site.is_a_job(words) is is_job


def test_the_watcher_lets_all_other_imports_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = site.Watcher("/boot")
    monkeypatch.setattr(sys, "meta_path", [watcher, *sys.meta_path])
    assert watcher.find_spec("json") is None
    assert watcher in sys.meta_path


def test_a_forked_child_is_not_armed(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = site.Watcher("/boot")
    monkeypatch.setattr(sys, "meta_path", [watcher, *sys.meta_path])
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert watcher.find_spec("torch") is None
    assert watcher not in sys.meta_path


def test_outcomes_are_read_as_they_come(tmp_path: Path) -> None:
    file = tmp_path / "outcome-0-77"
    told = preload_outcome.PreloadOutcome(tmp_path, 77)
    assert told.news() == []
    file.write_text('{"remedy": "a", "status": "applied", "why": null}\n{"remedy": "b", "sta')
    assert [line["remedy"] for line in told.news()] == ["a"]
    with file.open("a") as more:
        more.write('tus": "refused", "why": "no GPU"}\nnonsense\n{"steps": 9, "step_ns": {"count": 9}}\n')
    assert [line["remedy"] for line in told.news()] == ["b"]
    assert told.news() == []
    assert len(told.remedies) == 2
    assert told.step_ns == {"count": 9}


def test_every_process_is_heard_and_a_remedy_counts_once_unless_they_differ(tmp_path: Path) -> None:
    told = preload_outcome.PreloadOutcome(tmp_path, 77)
    for rank in (1, 0):
        (tmp_path / f"outcome-{rank}-6{rank}").write_text(
            '{"remedy": "one", "status": "applied"}\n' + json.dumps({"step_ns": {"count": 10 + rank}}) + "\n"
        )
    assert len(told.news()) == 1
    assert told.step_ns == {"count": 10}
    (tmp_path / "outcome-1-61").open("a").write('{"remedy": "two", "status": "refused", "why": "x"}\n')
    (tmp_path / "outcome-0-77").write_text(json.dumps({"step_ns": {"count": 5}}) + "\n")
    assert [line["remedy"] for line in told.news()] == ["two"]
    assert told.step_ns == {"count": 5}


def test_a_preloaded_agent_is_found_by_pid_and_start_time(tmp_path: Path) -> None:
    proc, runtime = FakeProc(tmp_path / "proc"), tmp_path / ("long" * 30)
    proc.add(42, start_ticks=777)
    runtime.mkdir(mode=0o700)
    assert not preloaded_agent.listening(42, proc.root, runtime)
    fd = os.open(runtime, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(f"/proc/self/fd/{fd}/agent-42-777.sock")
        door.listen(1)
        assert preloaded_agent.listening(42, proc.root, runtime)
        link = preloaded_agent.connect(42, proc.root, runtime)
        assert link is not None
        link.close()
    assert preloaded_agent.connect(42, proc.root, runtime, sleep=lambda seconds: None) is None
    os.close(fd)
    proc.add(42, start_ticks=778)
    assert not preloaded_agent.listening(42, proc.root, runtime)
