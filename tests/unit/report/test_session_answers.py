"""Six questions of a past session: each has an answer, whatever the log holds."""

from __future__ import annotations

import html
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from autobrrr import recipe
from autobrrr.cli.verbs.report import session_now
from autobrrr.records import Record, Reverted
from autobrrr.report.html.page_template import page_html
from autobrrr.report.page_text import page_text
from autobrrr.report.pages.session_page import answers, session_page
from autobrrr.report.pages.side_by_side import compare_sessions
from autobrrr.report.past_session import past_session, sessions_table
from support.screens import tui

UNSURE = tui.snapshot(
    regime="unknown", limit="unknown", reason="no second signal", limit_reason="", t_ns=90 * 10**9, advice=[]
)


def said(folder: Path, *entries: tuple[str, Record | dict[str, object]]) -> dict[str, str]:
    """Each question with its answer and what is behind it."""
    log = folder / "one.jsonl"
    log.write_bytes(
        b"".join(
            msgspec.json.encode({"at": float(at), "kind": kind, "body": body}) + b"\n"
            for at, (kind, body) in enumerate(entries)
        )
    )
    session = past_session(log)
    shown = page_html(session_page(session))
    for each in answers(session):
        assert f"<dt>{each.name}</dt>" in shown
    return {each.name: f"{each.text}; {each.note}" for each in answers(session)}


def test_a_tuned_session_answers_all_six(tmp_path: Path) -> None:
    ended = {"kind": "detached", "why": "detached", "left": []}
    found = said(tmp_path, ("snapshot", tui.snapshot()), ("tuned", tui.tuned()), ("ended", ended))
    assert list(found) == [
        "What is slow?", "How sure?", "What to do?", "How does it stand?", "What was gained?", "Is it safe?",
    ]  # fmt: skip
    assert found["What is slow?"].startswith("Limited by host: 68 % Python and dispatch; 1208 operators")
    assert found["How sure?"].startswith("high confidence; 2 signals say so: traced steps, batch probe")
    assert "autobrrr run --recipe" in found["What to do?"]
    assert found["How does it stand?"].startswith("detached")
    assert found["What was gained?"].startswith("1.56x [1.52–1.60] proven; 4.20 ms → 2.70 ms a step, saves")
    assert found["Is it safe?"].startswith("results stay the same up to rounding; cost: 0.44 %")


@pytest.mark.parametrize("file", [None, "my fast.toml"])
def test_the_page_says_how_to_start_with_what_was_kept_and_leaves_nothing_to_fill_in(
    tmp_path: Path, file: str | None
) -> None:
    """Where the session wrote no recipe, the page holds it."""
    tuned = msgspec.structs.replace(tui.tuned(), recipe=file)
    found = said(tmp_path, ("snapshot", tui.snapshot()), ("tuned", tuned))
    shown = html.unescape(page_html(session_page(past_session(tmp_path / "one.jsonl"))))
    assert "RECIPE" not in shown
    named = "'my fast.toml'" if file else "fast.toml"
    command = f"autobrrr run --recipe {named} -- python train.py"
    assert command in found["What to do?"]
    assert f"<pre>{command}</pre>" in shown
    held = re.search(r"<pre>(schema = 1.*?)</pre>", shown, re.DOTALL)
    assert (held is None) == (file is not None)
    if held is not None:
        assert [each.remedy for each in recipe.parse(held[1]).remedies] == ["optimizer.fused"]
        assert "cores" not in held[1]


def test_a_verdict_that_was_lost_later_is_told_with_its_age(tmp_path: Path) -> None:
    found = said(tmp_path, ("snapshot", tui.snapshot(t_ns=30 * 10**9)), ("snapshot", UNSURE))
    assert found["What is slow?"].startswith("Limited by host")
    assert found["How sure?"] == "high confidence; 60.0 s before the end"


def test_what_was_never_found_out_is_said_to_be_so(tmp_path: Path) -> None:
    found = said(tmp_path, ("snapshot", UNSURE))
    assert found["What is slow?"].startswith("No verdict: no second signal; ")
    assert found["How sure?"] == "no verdict; "
    assert found["What to do?"] == "measure again; autobrrr run -- python train.py, then: autobrrr diagnose"
    assert found["How does it stand?"].startswith("the log stops before the session's end; ")
    assert found["What was gained?"] == "not measured; nothing was tried"
    assert found["Is it safe?"].startswith("no remedy was kept")


def test_what_to_do_is_what_the_command_beside_it_tries(tmp_path: Path) -> None:
    usual = tui.snapshot().advice[0]
    drawing = msgspec.structs.replace(usual, remedy="attention.sdpa", class_="stream")
    found = said(tmp_path, ("snapshot", tui.snapshot(advice=[drawing])))
    tries = "autobrrr tune --param attention.sdpa --allow stream -- python train.py"
    assert found["What to do?"] == f"try attention.sdpa; {tries}"
    daring = msgspec.structs.replace(usual, remedy="precision.autocast_bf16", class_="changes-training")
    found = said(tmp_path, ("snapshot", tui.snapshot(advice=[daring])))
    assert "changes-training" not in found["What to do?"]
    found = said(tmp_path, ("snapshot", tui.snapshot(advice=[daring, usual])))
    assert found["What to do?"].startswith(f"try {usual.remedy}; autobrrr tune --param {usual.remedy} -- ")


def test_a_session_that_goes_on_is_not_told_as_one_that_stopped(tmp_path: Path) -> None:
    said(tmp_path, ("snapshot", tui.snapshot(t_ns=30 * 10**9)), ("snapshot", UNSURE))
    session = past_session(tmp_path / "one.jsonl")
    goes_on = replace(session, data=msgspec.structs.replace(session.data, alive=True, runs=True))
    found = {each.name: f"{each.text}; {each.note}" for each in answers(goes_on)}
    assert found["How sure?"] == "high confidence; 60.0 s ago"
    assert found["How does it stand?"].startswith("the session goes on; ")
    assert found["What to do?"] == "try optimizer.fused; autobrrr tune 8091"


@pytest.mark.parametrize("runs", [True, False])
def test_a_number_that_another_process_has_by_now_is_no_running_job(tmp_path: Path, runs: bool) -> None:
    at_s = time.time() if runs else 1.0  # before this very process began
    entry = {"at": at_s, "kind": "snapshot", "body": tui.snapshot(pid=os.getpid())}
    (tmp_path / "one.jsonl").write_bytes(msgspec.json.encode(entry))
    data = session_now(tmp_path / "one.jsonl").data
    assert (data.runs, data.alive) == (runs, False)


def test_what_a_session_leaves_on_without_a_tuning_is_not_said_to_be_nothing(tmp_path: Path) -> None:
    found = said(tmp_path, ("snapshot", tui.snapshot(active=["batch.larger"])))
    assert found["How does it stand?"].endswith("on at the end: batch.larger")
    assert found["Is it safe?"].startswith("no tuning kept what is on")


def test_no_list_names_a_speed_up_that_was_not_confirmed(tmp_path: Path) -> None:
    unconfirmed = msgspec.structs.replace(tui.tuned(), interval=None)
    found = said(tmp_path, ("snapshot", tui.snapshot()), ("tuned", unconfirmed))
    assert found["What was gained?"].startswith("nothing is claimed")
    session = past_session(tmp_path / "one.jsonl")
    assert "1.56" not in sessions_table({"one": session})
    both = compare_sessions(session.data, session.data).comparison
    (kept,) = [each for each in both.words if each.name == "kept"]
    assert kept.after == "optimizer.fused: no speed-up claimed"


def test_what_the_guard_has_reverted_since_is_neither_proven_nor_to_be_started_with(tmp_path: Path) -> None:
    kept = msgspec.structs.replace(tui.tuned(), recipe="fast.toml")
    undid = Reverted(remedy=kept.kept[0], why="the loss is no longer finite")
    found = said(tmp_path, ("snapshot", tui.snapshot()), ("tuned", kept), ("guard", undid))
    assert found["What was gained?"].startswith("no remedy was proven faster")
    assert "--recipe" not in found["What to do?"]
    assert found["Is it safe?"].startswith("no remedy was kept")
    text = page_text(session_page(past_session(tmp_path / "one.jsonl")), None)
    assert f"the guard reverted {kept.kept[0]}: the loss is no longer finite" in text
    assert "1.56x [1.52" not in text
