"""An office with a guest: a service without sockets of the system, and a client of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.sessions.service import Guest, Office


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


@pytest.fixture
def guest(office: Office) -> Guest:
    return Guest(office)
