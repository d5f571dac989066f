"""Answers to agents are short, whatever they hold."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.cli import agent_tools
from autobrrr.cli.agent_tools import MOST_BYTES, fitted
from autobrrr.errors import UsageError
from support.screens import tui

LONG_TEXTS = st.builds(str.__mul__, st.text(max_size=4), st.integers(0, 500))  # long ones take long to draw
VALUES = st.recursive(
    st.none() | st.integers() | LONG_TEXTS,
    lambda inner: st.lists(inner, max_size=60) | st.dictionaries(st.text(max_size=20), inner, max_size=8),
    max_leaves=20,
)


@given(st.dictionaries(LONG_TEXTS, VALUES, max_size=8))
def test_an_answer_is_json_of_two_kilobytes_at_most(answer: dict[str, object]) -> None:
    text = fitted(answer)
    assert isinstance(json.loads(text), dict)
    assert len(text.encode()) <= MOST_BYTES


def test_what_does_not_fit_is_counted() -> None:
    jobs = [{"pid": number, "script": "x" * 100} for number in range(40)]
    found = json.loads(fitted({"jobs": jobs}))
    assert found["jobs"] == jobs[: len(found["jobs"])]
    assert found["left_out"] == 40 - len(found["jobs"]) > 0


def test_a_report_is_of_a_session_of_this_user_and_of_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    elsewhere = tmp_path / "20260101-100000-42.jsonl"
    elsewhere.write_bytes(
        msgspec.json.encode({"at": 1.0, "kind": "snapshot", "body": tui.snapshot()}) + b"\n"
    )
    monkeypatch.chdir(tmp_path)
    for name in (str(elsewhere), elsewhere.name, f"../{tmp_path.name}/{elsewhere.name}", "demo"):
        with pytest.raises(UsageError, match="there is no session"):
            agent_tools.report(name)
    logs = tmp_path / "state" / "autobrrr" / "sessions"
    logs.mkdir(parents=True)
    elsewhere.rename(logs / elsewhere.name)
    assert json.loads(agent_tools.report("42"))["session"] == elsewhere.stem


@pytest.mark.parametrize("for_s", [math.nan, 1e9])
@pytest.mark.parametrize("tool", [agent_tools.diagnose, agent_tools.what_to_try, agent_tools.tune])
def test_no_tool_works_for_ever(tool: Callable[..., str], for_s: float) -> None:
    with pytest.raises(UsageError, match="no time to work"):
        tool(2**22 + 1, for_s)
