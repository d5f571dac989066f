"""`autobrrr mcp` with the protocol's own client, over its stdin and stdout."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.training import TrainingJob, environment

pytest.importorskip("mcp", reason="the extra autobrrr[mcp] is not installed")

from mcp import Client, StdioServerParameters

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]
READING = {"jobs", "report", "explain"}


def asked(
    tmp_path: Path, *calls: tuple[str, dict[str, Any]], words: tuple[str, ...] = ()
) -> tuple[set[str], list[Any]]:
    """The names of all tools, and what the calls were answered with."""

    async def talk() -> tuple[set[str], list[Any]]:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "autobrrr", "mcp", *words],
            env={**environment(tmp_path), "PYTHONPATH": str(ROOT)},
            cwd=str(tmp_path),
        )
        async with Client(server) as client:
            listed = (await client.list_tools()).tools
            assert all(each.annotations.read_only_hint is (each.name in READING) for each in listed)
            tools = {each.name for each in listed}
            return tools, [await client.call_tool(name, given) for name, given in calls]

    return asyncio.run(talk())


def said(answer: Any) -> str:
    assert len(answer.content) == 1
    return str(answer.content[0].text)


def test_without_allow_it_only_reads(tmp_path: Path) -> None:
    calls = ("explain", {"word": "data_wait"}), ("report", {"session": "list"}), ("tune", {"pid": 1})
    tools, (word, sessions, refused) = asked(tmp_path, *calls)
    assert tools == READING
    assert json.loads(said(word))["name"] == "data_wait"
    assert json.loads(said(sessions)) == {"sessions": []}
    assert refused.is_error


def test_a_job_is_listed_diagnosed_and_left(tmp_path: Path, job: Callable[..., TrainingJob]) -> None:
    attached = job("plain")
    listing = (
        "jobs",
        {"after": attached.pid - 1},
    )  # beside many other jobs it would not be on the first page
    calls = listing, ("what_to_try", {"pid": attached.pid, "for_s": 4}), listing
    tools, answers = asked(tmp_path, *calls, words=("--allow",))
    assert tools > READING
    assert len(tools) <= 10
    assert not any(each.is_error for each in answers), [said(each) for each in answers]
    assert all(len(said(each).encode()) <= 2048 for each in answers)
    listed, tried, later = (json.loads(said(each)) for each in answers)
    assert attached.pid in [each["pid"] for each in listed["jobs"]]
    assert tried["pid"] == attached.pid
    assert [each["attached"] for each in later["jobs"] if each["pid"] == attached.pid] == [False]
    attached.finish()


def test_a_proof_is_an_answer_and_one_that_can_not_be_made_an_error(tmp_path: Path) -> None:
    call = "prove", {"before": "python nowhere.py", "after": "python nowhere.py", "for_s": 10}
    _, (found,) = asked(tmp_path, call, words=("--allow",))
    assert found.is_error
    assert "nowhere.py" in said(found)
