"""Joining a session that is there: it may do less to the job than was asked for, never more."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import MagicMock

import pytest

from autobrrr.attach import job_roles
from autobrrr.cli.verbs import attach, detach
from autobrrr.client import session_client
from autobrrr.client.session_client import Client, open_session, tell_about_joined
from autobrrr.errors import CannotAttach
from autobrrr.readable import Foreign
from autobrrr.records import from_registry
from autobrrr.records.session_requests import OwnSession
from autobrrr.records.wire_answers import SessionEnding
from autobrrr.sidecar.process.session_options import SessionOptions


def session(**given: object) -> Client:
    facts = {"pid": 7, "outside": False, "readonly": False, "probing": "on", "metrics": None, **given}
    return cast(Client, SimpleNamespace(facts=SimpleNamespace(**facts)))


@pytest.mark.parametrize(
    ("asked", "flag"),
    [
        (SessionOptions(outside=True), "--outside"),
        (SessionOptions(readonly=True), "--readonly"),
        (SessionOptions(probing="off"), "--no-probe"),
        (SessionOptions(metrics="9464"), "--metrics"),
    ],
)
def test_a_session_that_does_more_than_was_asked_for_is_not_joined(asked: SessionOptions, flag: str) -> None:
    with pytest.raises(CannotAttach, match=flag) as caught:
        tell_about_joined(session(), asked, print)
    assert "autobrrr detach 7" in caught.value.hint


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        ({}, SessionOptions()),
        ({"readonly": True}, SessionOptions(readonly=True)),
        ({"readonly": True}, SessionOptions(probing="off")),
        ({"outside": True}, SessionOptions(readonly=True)),
    ],
)
def test_a_session_that_does_as_much_or_less_is_joined(
    there: dict[str, object], asked: SessionOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_about_joined(session(**there), asked, print)
    assert "joined the existing session" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("started", "how", "owns"),
    [
        (True, {}, []),  # said from the first moment
        (False, {}, [False]),  # also one that a diagnosis has started, which would end it
        (True, {"owned": True}, []),
        (False, {"owned": True}, [True]),
    ],
)
def test_a_session_stays_where_the_command_that_leaves_it_says_so(
    monkeypatch: pytest.MonkeyPatch, started: bool, how: dict[str, bool], owns: list[bool]
) -> None:
    client = MagicMock(facts=session().facts, started=started)
    monkeypatch.setattr(session_client, "find_target", lambda pid: pid)
    monkeypatch.setattr(session_client, "_joined", lambda *target, **more: client)
    assert open_session(7, SessionOptions(), lambda line: None, **how) is client
    assert [call.args[0] for call in client.ask.call_args_list] == list(map(OwnSession, owns))


@pytest.mark.parametrize(
    ("before", "on", "said"),
    [
        (["gc.freeze"], (), "detached; reverted: gc.freeze"),
        (["gc.freeze"], ("gc.freeze",), "detached; still applied: gc.freeze"),
        ([], ("gc.freeze",), "detached; still applied: gc.freeze"),
        (
            ["gc.freeze", "optimizer.fused"],
            ("gc.freeze",),
            "detached; still applied: gc.freeze; reverted: optimizer.fused",
        ),
        ([], (), "detached; no remedy was on"),
    ],
)
def test_a_detach_says_what_is_on_after_it(
    before: list[str], on: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = SessionEnding(kind="detached", why="detached", on=on)
    client = MagicMock(ask=lambda _: SimpleNamespace(active=before), detach=lambda keep: ending)
    client.__enter__.return_value = client
    monkeypatch.setattr(detach, "join_under_way", lambda pid, on_wait: client)
    lines: list[str] = []
    assert detach._detach(7, True, lines.append)
    assert lines == [said]


def test_a_recipe_is_held_against_the_torch_of_the_job_that_it_is_applied_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "r.toml"
    file.write_text('schema = 1\nnumerics.class = "bitwise"\nmatch.torch = "<2"\nremedies.gc.freeze = {}\n')
    for version, said in (("1.13.1", False), ("2.1.0", True), (None, False)):
        torch = version and job_roles.TorchFiles(folder=Foreign("/site/torch"), version=Foreign(version))
        monkeypatch.setattr(job_roles, "torch_of", lambda pid, torch=torch: torch)
        wanted = attach.live_remedies(str(file), os.getpid())
        assert (wanted.remedies, wanted.most_class) == ([from_registry("gc.freeze")], "bitwise")
        assert (f"it is for torch <2, this is {version}" in capsys.readouterr().err) is said
