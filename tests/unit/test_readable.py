"""Text of somebody else's making is safe wherever it is shown, and looks as it did where it was harmless."""

from __future__ import annotations

import asyncio
import json
import socket
import unicodedata
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup, escape

from autobrrr.agent.wire.framing import encode
from autobrrr.cli.verb_arguments import narrate
from autobrrr.cli.verbs import ls
from autobrrr.errors import AutobrrrError
from autobrrr.readable import MOST_INTEGER, Foreign, cleaned, fields, readable, readable_lines
from autobrrr.records import JobLine
from autobrrr.report.html import page_template
from autobrrr.report.html.page_template import page_html
from autobrrr.report.pages.session_page import session_page
from autobrrr.report.past_session import past_session
from autobrrr.report.text.live_line import live_line
from autobrrr.report.text.verdict_text import verdict_text
from autobrrr.sidecar.session.session_log import SessionLog
from autobrrr.sidecar.sockets.agent_link import AgentLink, spoken
from autobrrr_tui.app import AutobrrrApp
from autobrrr_tui.screens.jobs_screen import TopScreen
from autobrrr_tui.text_rows import plain, row, wrapped
from support.pages import read_page
from support.screens import tui
from support.sessions.session import read_log

CONTROLS = "\x1b[2J\x1b]0;title\x07\x9b31m\r\n\t\x00\x7f\x85\x1c"
UNSEEN = "\u202e\u2066\u200b\u200d\ufeff\u2028\u2029\udc9b\U000e0041\u3164"
UNSEEN += "\u180b\u180f\U000e0100\U000e01ef\ufff9\u00ad\ufe0f\U00016fe4\U0001d159"
STEERING = CONTROLS + UNSEEN
ANY = st.text(st.one_of(st.characters(), st.sampled_from(STEERING), st.sampled_from("[]<>&\"'/")))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), ANY),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(ANY, inner, max_size=4)),
    max_leaves=20,
)


def is_safe(text: str) -> bool:
    """Nothing in it steers, breaks a line, turns the direction, is not seen, or can't be encoded."""
    bad = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return not any(unicodedata.category(each) in bad or each in UNSEEN + "\u115f" for each in text)


@given(ANY)
def test_whatever_comes_in_is_safe(text: str) -> None:
    shown = readable(text)
    assert is_safe(shown)
    assert shown.encode().decode() == shown
    assert readable(shown) == shown
    assert str(Foreign(text)) == f"{Foreign(text)}" == shown
    assert is_safe(repr(Foreign(text)))
    assert readable_lines(text).count("\n") == text.count("\n")


def test_what_steers_stands_as_its_escape() -> None:
    assert readable("a\x1b[31mb\x9b\u202ec\udcff\n") == r"a\x1b[31mb\x9b\u202ec\xff\n"


@pytest.mark.parametrize(
    "text", ["train.py", "/data/名前/tränen 2.py", "void f<3>(int)", "[red]x[/red]", "a\\nb"]
)
def test_what_is_harmless_is_left_as_it_is(text: str) -> None:
    assert readable(text) == text


def test_odd_spaces_become_plain_ones() -> None:
    assert readable("a\u00a0b\u3000c") == "a b c"


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


def test_numbers_that_no_record_holds_are_not_measured() -> None:
    assert cleaned([MOST_INTEGER, -MOST_INTEGER, 2**70, float("nan"), float("inf"), 1.5, True]) == [
        *(None, -MOST_INTEGER, None, None, None, 1.5, True)
    ]


def test_a_foreign_text_is_no_text_to_a_type_checker_nor_to_json() -> None:
    assert not isinstance(Foreign("x"), str)
    with pytest.raises(TypeError):
        json.dumps(Foreign("x"))


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


def test_a_line_of_narration_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    narrate(STEERING)
    shown = capsys.readouterr().err
    assert shown.endswith("\n")
    assert is_safe(shown[:-1])


@given(ANY)
def test_a_name_can_t_break_out_of_a_page_nor_steer_it(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    log = SessionLog(tmp_path_factory.mktemp("log") / "1.jsonl")
    found = tui.snapshot(adds=readable(text), job=tui.job(script=f"<b>{readable(text)}"))
    log.write("snapshot", found)
    log.close()
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


@given(ANY)
def test_what_a_log_says_is_safe_where_it_is_read(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.mktemp("log") / "1.jsonl"
    path.write_text(json.dumps({"at": 1, "kind": "note", "body": {"text": text, text: [text]}}) + "\n")
    ((_, body),) = read_log(path)
    assert all(map(is_safe, json.dumps(body, ensure_ascii=False).split("\n")))


def test_markup_in_a_job_s_name_is_text_on_the_screen() -> None:
    name = "[red]x[@click=q]y.py"
    line = JobLine(pid=7, script=name, rank=None, torch="2", attached=False, attachable=True, why=None)

    def no_source(pid: int) -> tui.FakeSource:
        raise AutobrrrError("none")

    async def run() -> str:
        app = AutobrrrApp(TopScreen(lambda unseen: [line], no_source, no_source), environ={})
        async with app.run_test(size=(120, 24)) as pilot:
            text = ""
            for _ in range(200):
                await pilot.pause(0.02)
                text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
                if "y.py" in text:
                    break
            return text

    assert name in asyncio.run(run())


def test_a_sentence_of_an_agent_s_is_bounded() -> None:
    assert len(spoken("x" * 900_000)) == 4096


@pytest.mark.parametrize("said", [STEERING, "x" * 10_000])
def test_an_error_of_a_file_s_making_is_one_safe_line(said: str, tmp_path: Path) -> None:
    assert is_safe(readable(f"{tmp_path}: {said}"))


def test_no_text_of_a_page_steers_it_whoever_cleaned_it_before() -> None:
    text = "\x1b]0;x\x07\u202e<script>\x9b31m\nnext"
    shown = page_template._environment().from_string("{{ text }}{{ ours }}")
    assert shown.render(text=text, ours=Markup("<b>")) == f"{escape(readable_lines(text))}<b>"
    data = page_template.inline_json(msgspec.json.encode([text, "\u2028", "ä — é"]).decode())
    assert all(map(is_safe, data.split("\n")))
    assert "<" not in data
    first, line_end, plain = json.loads(data)
    assert (line_end, plain) == ("\\u2028", "ä — é")
    assert "\\u202e" in first
