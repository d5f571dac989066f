"""A session that tests drive without a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.sessions.session import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)
