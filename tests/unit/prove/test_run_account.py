"""An account is a stranger's file: what is not as it should be is left out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from autobrrr.prove.run_account import RunAccount
from support.accounts import step


def test_lines_are_read_as_they_come(tmp_path: Path) -> None:
    file = tmp_path / "a-0-77"
    found = RunAccount(file=tmp_path / "a")
    found.look()
    assert found.steps == []
    lines = [msgspec.json.encode(step(i)) for i in range(3)]
    file.write_bytes(lines[0] + b"\n" + lines[1][:20])
    found.look()
    assert len(found.steps) == 1
    with file.open("ab") as more:
        more.write(lines[1][20:] + b'\n{"note": "saved", "what": 1, "step": 1}\n{"end": 2, "evaluated": 5}\n')
    found.look()
    assert [each.step for each in found.steps] == [0, 1]
    assert (found.noted("saved"), found.noted("saved", 1), found.evaluated_last) == ([1], [], 5)


def test_what_is_no_line_of_ours_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a-0-1").write_bytes(
        b'{"step": 1}\n{"note": 3}\nnonsense\n{"step": "x", "loss": []}\n'
        + msgspec.json.encode(step(0))
        + b"\n"
    )
    found = RunAccount(file=tmp_path / "a")
    found.look()
    assert [each.step for each in found.steps] == [0]
    assert found.notes == []


@pytest.mark.timeout(30)
@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, put: Callable[[Path], None]) -> None:
    put(tmp_path / "a-0-1")
    found = RunAccount(file=tmp_path / "a")
    found.look()
    assert found.steps == []


def test_a_line_that_is_too_deep_or_no_text_costs_that_line_alone(tmp_path: Path) -> None:
    (tmp_path / "a-0-1").write_bytes(
        b'{"note": "deep", "step": 1, "what": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
        b'{"note": "\xff\xfe", "step": 1, "what": 1}\n{"note": "whole", "step": 1, "what": 1}\n'
    )
    found = RunAccount(file=tmp_path / "a")
    found.look()
    assert found.noted("whole") == [1]


def test_the_account_is_of_the_process_that_trains_also_where_another_imported_torch_before_it(
    tmp_path: Path,
) -> None:
    found = RunAccount(file=tmp_path / "a")
    note, line = b'{"note": "threads", "what": %d, "step": 0}\n', msgspec.json.encode(step(0)) + b"\n"
    (tmp_path / "a-0-7").write_bytes(note % 1)
    found.look()
    (tmp_path / "a-0-8").write_bytes(note % 2 + line)
    for _ in range(2):
        found.look()
    assert (len(found.steps), found.noted("threads"), found.processes) == (1, [2], 1)


@pytest.mark.parametrize(
    "odd", [{"precision": "x"}, {"moved": -1.0}, {"samples": 10**400}, {"flops": {"float32": 10**400}}]
)
def test_a_step_that_no_step_can_be_is_left_out(tmp_path: Path, odd: dict[str, object]) -> None:
    (tmp_path / "a-0-7").write_text(json.dumps({**json.loads(msgspec.json.encode(step(0))), **odd}) + "\n")
    found = RunAccount(file=tmp_path / "a")
    found.look()
    assert found.steps == []


def test_processes_that_train_are_counted_and_those_that_only_import_torch_are_not(tmp_path: Path) -> None:
    found = RunAccount(file=tmp_path / "a")
    note, line = b'{"note": "seeded", "what": "1", "step": 0}\n', msgspec.json.encode(step(0)) + b"\n"
    (tmp_path / "a-0-7").write_bytes(note + line)
    (tmp_path / "a-0-8").write_bytes(note)
    found.look()
    found.look()
    assert found.processes == 1
    (tmp_path / "a-1-9").write_bytes(note + line)
    found.look()
    assert found.processes == 2
