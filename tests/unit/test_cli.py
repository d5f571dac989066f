"""The command line's frame: verbs, errors, exit codes."""

from __future__ import annotations

import io
import json
import sys

import pytest

from autobrrr import cli
from autobrrr.errors import CannotAttach


def test_every_verb_is_a_module_that_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in cli.VERBS:
        with pytest.raises(SystemExit) as ended:
            cli.main([verb, "--help"])
        assert ended.value.code == 0
        assert f"autobrrr {verb}" in capsys.readouterr().out


def test_no_words_at_all_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == 0
    assert "attach" in capsys.readouterr().out


def test_an_unknown_verb_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["atach"]) == 2
    assert "atach" in capsys.readouterr().err


def test_wrong_words_are_an_error_like_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diagnose", "7", "--for", "soon"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("autobrrr: error: argument --for")
    assert second == "hint: autobrrr diagnose --help shows what it takes"
    assert cli.main(["diagnose", "seven", "--json"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert json.loads(said.err)["exit_code"] == 2


def test_an_error_says_what_and_what_to_do_and_nothing_on_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.complain(CannotAttach("pid 7 is stopped", "kill -CONT 7"), as_json=False) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "autobrrr: error: pid 7 is stopped\nhint: kill -CONT 7\n"


def test_foreign_text_in_an_error_makes_no_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    cli.complain(CannotAttach("a\nb\x1b[2J", "c\nd"), as_json=False)
    assert capsys.readouterr().err.count("\n") == 2


def test_an_error_in_json_is_one_object_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    cli.complain(CannotAttach("no", "yes"), as_json=True)
    said = capsys.readouterr()
    assert said.out == ""
    assert json.loads(said.err) == {"schema": 1, "error": "no", "hint": "yes", "exit_code": 3}


def test_a_terminal_without_unicode_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    plain = io.TextIOWrapper(written, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", plain)
    assert cli.main(["report", "demo"]) == 0
    plain.flush()
    assert b"regime" in written.getvalue()
    print("\u2588\udcff", flush=True)
    assert written.getvalue().endswith(b"??\n")
