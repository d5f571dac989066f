"""An account is a stranger's file: what is not as it should be is left out."""

from __future__ import annotations

from pathlib import Path

import msgspec

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
