"""Lines of a stranger's log: none is so long that it fills the memory, and a pipe is not waited for."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from autobrrr.errors import UsageError
from autobrrr.records import log_lines
from autobrrr.records.log_lines import LogLines, lines_of
from autobrrr.report.past_session import past_session

LINE = b'{"at": 1.0, "kind": "note", "body": {"text": "whole"}}\n'


def test_a_line_that_does_not_end_comes_in_pieces_and_what_follows_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "MOST_LINE_BYTES", 1 << 16)
    packed = tmp_path / "bomb.jsonl.gz"
    packed.write_bytes(gzip.compress(b"x" * (1 << 22) + b"\n" + LINE))
    assert max(map(len, lines_of(packed))) == 1 << 16
    lines = LogLines(lines_of(packed))
    assert [line.body for line in lines] == [{"text": "whole"}]
    assert lines.unread >= 64


@pytest.mark.timeout(30)
def test_a_pipe_that_took_the_place_of_a_log_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "session.jsonl"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="not a regular file"):
        past_session(pipe)


def test_a_file_longer_than_any_log_is_read_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "MOST_FILE_BYTES", 1 << 20)
    file = tmp_path / "s.jsonl"
    file.write_text('{"kind": "note", "body": {}}\n')
    with file.open("r+b") as sparse:
        sparse.truncate(1 << 40)
    lines = LogLines(lines_of(file))
    assert [line.kind for line in lines] == ["note"]
    assert lines.said is not None
    assert "no log of a session is so long" in lines.said
