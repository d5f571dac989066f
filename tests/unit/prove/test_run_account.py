"""An account is a file that grows, one for each process."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from autobrrr.errors import AutobrrrError
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


def test_a_loss_that_is_not_a_number_is_read_too(tmp_path: Path) -> None:
    line = msgspec.json.encode(step(0, loss=1.5)).replace(b"1.5", b"NaN")
    (tmp_path / "a-0-1").write_bytes(line + b"\n")
    found = RunAccount(file=tmp_path / "a")
    found.look()
    assert math.isnan(found.steps[0].loss or 0.0)


def test_an_account_that_a_full_disk_has_cut_ends_the_proof_in_words(tmp_path: Path) -> None:
    line = msgspec.json.encode(step(0))
    (tmp_path / "a-0-1").write_bytes(line[:40] + line + b"\n")
    with pytest.raises(AutobrrrError, match=r"account of a run is cut: is .* full\?"):
        RunAccount(file=tmp_path / "a").look()


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
