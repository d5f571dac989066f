"""A pipe in place of a log is not waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autobrrr.errors import UsageError
from autobrrr.report.past_session import past_session


@pytest.mark.timeout(30)
def test_a_pipe_that_took_the_place_of_a_log_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "session.jsonl"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="not a regular file"):
        past_session(pipe)
