"""Sampled stacks as a speedscope file, from a session log."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from autobrrr.cli import main
from autobrrr.records import CallPath, FrameCount, FrameSamples
from support.judged.verdicts import OVERHEAD

PLACE = FrameCount(where="train.py:31 load", phase="data_wait", in_loader=True, samples=4)
NEW = FrameSamples(
    samples=10,
    places=[PLACE],
    paths=[
        CallPath(phase="forward", frames=["train.py:9 main", "net.py:3 forward\x1b[2J"], samples=6),
        CallPath(phase="data_wait", frames=["train.py:9 main", "train.py:31 load"], samples=4),
    ],
)
OLD = FrameSamples(samples=4, places=[PLACE])


def log(folder: Path, *taken: FrameSamples) -> Path:
    file = folder / "20260101-100000-7.jsonl"
    entries = [
        *({"at": 1.0, "kind": "frames", "body": {"frames": msgspec.to_builtins(each)}} for each in taken),
        {"at": 2.0, "kind": "snapshot", "body": msgspec.to_builtins(OVERHEAD)},
    ]
    file.write_bytes(b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries))
    return file


def test_every_sampling_is_a_profile_whose_weights_are_samples(tmp_path: Path) -> None:
    target = tmp_path / "stacks.json"
    assert main(["report", str(log(tmp_path, NEW, OLD)), "--speedscope", str(target)]) == 0
    found = json.loads(target.read_text())
    assert found["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    names = [frame["name"] for frame in found["shared"]["frames"]]
    assert all(name.isprintable() for name in names)

    def stacks(profile: int) -> list[list[str]]:
        return [[names[frame] for frame in stack] for stack in found["profiles"][profile]["samples"]]

    assert stacks(0) == [
        ["forward", "train.py:9 main", "net.py:3 forward\\x1b[2J"],
        ["data_wait", "train.py:9 main", "train.py:31 load"],
    ]
    assert stacks(1) == [["data_wait", "train.py:31 load"]]  # a log of an earlier version
    assert found["profiles"][0]["weights"] == [6, 4]
    assert found["profiles"][0]["endValue"] == 10


def test_a_session_without_stacks_says_how_to_get_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "stacks.json"
    assert main(["report", str(log(tmp_path)), "--speedscope", str(target)]) == 1
    assert not target.exists()
    assert "holds no sampled stacks" in capsys.readouterr().err
