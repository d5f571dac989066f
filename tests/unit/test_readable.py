"""Text of somebody else's making is safe wherever it is shown, and looks as it did where it was harmless."""

from __future__ import annotations

import json
import socket
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.agent.wire.framing import encode
from autobrrr.cli.verbs import ls
from autobrrr.readable import Foreign, cleaned, fields, readable, readable_lines
from autobrrr.records import JobLine
from autobrrr.report.html.page_template import page_html
from autobrrr.report.pages.session_page import session_page
from autobrrr.report.past_session import past_session
from autobrrr.report.text.verdict_text import live_line, verdict_text
from autobrrr.report.text_rows import plain, row, wrapped
from autobrrr.sidecar.session.session_log import SessionLog
from autobrrr.sidecar.sockets.socket_frames import AgentLink
from support.pages import read_page
from support.screens import tui

CONTROLS = "\x1b[2J\x1b]0;title\x07\x9b31m\r\n\t\x00\x7f\x85\x1c"
STEERING = CONTROLS + "\u202e\u2066\u200b\u200d\ufeff\u2028\u2029\udc9b\U000e0041\ufff9\u00ad"
ANY = st.text(st.one_of(st.characters(), st.sampled_from(STEERING), st.sampled_from("[]<>&\"'/")))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), ANY),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(ANY, inner, max_size=4)),
    max_leaves=20,
)


def is_safe(text: str) -> bool:
    """Nothing in it steers, breaks a line, turns the direction, or can't be encoded."""
    bad = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return not any(unicodedata.category(each) in bad for each in text)


@given(ANY)
def test_whatever_comes_in_is_safe(text: str) -> None:
    shown = readable(text)
    assert is_safe(shown)
    assert shown.encode().decode() == shown
    assert readable(shown) == shown
    assert str(Foreign(text)) == f"{Foreign(text)}" == shown
    assert is_safe(repr(Foreign(text)))
    assert readable_lines(text).count("\n") == text.count("\n")


@pytest.mark.parametrize(
    "text", ["train.py", "/data/名前/tränen 2.py", "void f<3>(int)", "[red]x[/red]", "a\\nb"]
)
def test_what_is_harmless_is_left_as_it_is(text: str) -> None:
    assert readable(text) == text


@given(st.integers(1, 50), ANY)
def test_a_text_is_no_longer_than_asked_for_and_a_cut_is_marked(most: int, text: str) -> None:
    shown = readable(text, most)
    assert len(shown) <= most
    assert shown == readable(text) or shown.endswith("…")


@given(JSON)
def test_a_cleaned_tree_can_be_a_record_and_a_line(value: object) -> None:
    found = cleaned(value)
    line = msgspec.json.encode(found).decode()
    assert is_safe(json.dumps(json.loads(line), ensure_ascii=False))
    assert cleaned(found) == found


@given(st.dictionaries(ANY.filter(lambda name: name != "v"), JSON, max_size=4))
def test_every_text_of_an_agent_s_message_is_safe_before_anyone_sees_it(said: dict[str, object]) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        link = AgentLink(ours)
        theirs.sendall(encode({**said, "event": "note\x1b", "fd": 0}))
        (heard,) = link.read()
        link.wire.close()
    assert heard["event"] == "note\\x1b"
    assert heard["fd"] is None
    assert is_safe(json.dumps(heard, ensure_ascii=False))


@given(ANY.filter(bool))
def test_lines_for_a_terminal_are_safe_and_lines(text: str) -> None:
    line = JobLine(pid=7, script=text, rank=None, torch=text, attached=False, attachable=False, why=text)
    _, one = ls.table([line]).split("\n")
    assert is_safe(one)
    found = tui.snapshot(**fields({"activity": text, "reason": text}), job=tui.job(script=readable(text)))
    assert is_safe(live_line(found))
    assert all(map(is_safe, verdict_text(found).split("\n")))
    assert is_safe(plain(row(text)))
    assert all(map(is_safe, wrapped(text, 20)))


@given(ANY.filter(lambda text: text == text.encode(errors="replace").decode()))  # else it is no JSON
def test_a_name_can_t_break_out_of_a_page_nor_steer_it(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    log = SessionLog(tmp_path_factory.mktemp("log") / "1.jsonl")
    found = tui.snapshot(adds=readable(text), job=tui.job(script=f"<b>{readable(text)}"))
    log.write("snapshot", found)
    # As somebody else may have written it.
    forged = json.loads(log.path.read_text())
    forged["body"]["adds"] = f"<script>{text}"
    log.path.write_text(json.dumps(forged) + "\n")
    shown = page_html(session_page(past_session(log.path)))
    read = read_page(shown)
    assert len(read.scripts) == 1  # the page's own
    assert f"<script>{readable_lines(text)}" in read.text
    assert f"<b>{readable(text)}" in read.text
    assert all(map(is_safe, shown.split("\n")))
