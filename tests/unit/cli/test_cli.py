"""The command line's frame: verbs, errors, exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from autobrrr import __version__, cli
from autobrrr.cli.verbs import demo, ls
from autobrrr.errors import CannotAttach
from autobrrr.records import JobLine


def test_every_verb_is_a_module_that_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in cli.VERBS:
        with pytest.raises(SystemExit) as ended:
            cli.main([verb, "--help"])
        assert ended.value.code == 0
        assert f"autobrrr {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        (["atach"], "there is no verb 'atach'", "did you mean autobrrr attach?"),
        (["qqqq"], "there is no verb 'qqqq'", "autobrrr --help lists the verbs"),
        (["diagnose", "7", "--windw"], "unknown argument: --windw", "did you mean --window?"),
        (["run", "--strct", "--", "true"], "unknown argument: --strct", "did you mean --strict?"),
        (["recipe", "shw"], "ACTION 'shw' does not exist", "did you mean show?"),
        (["diagnose", "7", "--sweep", "bach"], "--sweep 'bach' does not exist", "did you mean batch?"),
        (["tune", "7", "--only", "optimizer.fuse"], "--only optimizer.fuse", "did you mean optimizer.fused?"),
        (["recipe", "show", "cpu-onyl"], "cpu-onyl", "did you mean cpu-only?"),
        (["--print-completion", "bsh"], "no completion for 'bsh'", "shells that are known: bash"),
    ],
)
def test_a_wrong_word_is_a_usage_error_that_names_the_nearest(
    words: list[str], what: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert what in said.err
    assert hint in said.err


@pytest.mark.parametrize(
    ("closed", "words", "code"), [("<&- >&- 2>&-", "explain data_wait", 0), ("2>&-", "nope", 2)]
)
def test_a_closed_standard_stream_is_one_that_nobody_reads(closed: str, words: str, code: int) -> None:
    script = f'"$0" -m autobrrr {words} {closed}'
    done = subprocess.run(["sh", "-c", script, sys.executable], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    if "2>" in closed and words == "nope":
        assert done.stdout == "", "an error is no result"


def test_the_version_has_what_a_bug_report_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"autobrrr {__version__} in ")
    assert [line.split()[0] for line in lines[1:]] == ["python", "packages", "system", "machine"]
    assert sys.executable in lines[1]


@pytest.mark.parametrize("shell", ["bash"])
def test_completion_knows_every_verb_and_flag(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--print-completion", shell]) == 0
    script = capsys.readouterr().out
    for word in (*cli.VERBS, "--readonly", "--storage"):
        assert word.lstrip("-") in script


def test_help_imports_nothing_that_takes_time() -> None:
    heavy = {"numpy", "torch", "msgspec", "textual", "optuna", "shtab", "psutil", "importlib.metadata"}
    code = f"""
import sys
from autobrrr.cli import main
try: main(["--help"])
except SystemExit: pass
sys.exit(str(sorted(set(sys.modules) & {heavy!r})) if set(sys.modules) & {heavy!r} else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def job(pid: int, script: str) -> JobLine:
    return JobLine(pid=pid, script=script, rank=None, torch="2.9", attached=False, attachable=True, why=None)


@pytest.mark.parametrize(
    ("jobs", "code", "said"),
    [
        ([], 4, "no PID is given, and no training job runs here"),
        ([job(7, "a.py"), job(8, "b.py")], 2, "2 jobs run here: 7 (a.py), 8 (b.py)"),
    ],
)
def test_diagnose_without_a_pid_says_what_there_is(
    jobs: list[JobLine],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(ls, "jobs", lambda: jobs)
    assert cli.main(["diagnose"]) == code
    assert said in capsys.readouterr().err


def test_without_a_pid_the_only_job_is_taken_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ls, "jobs", lambda: [job(4194304, "a.py")])
    assert cli.main(["diagnose"]) == 4  # it is gone meanwhile
    assert "the only job here is 4194304 (a.py)" in capsys.readouterr().err


def test_wrong_words_are_an_error_like_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diagnose", "7", "--for", "soon"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("autobrrr: error: argument --for")
    assert second == "hint: autobrrr diagnose --help shows what it takes"
    assert cli.main(["diagnose", "seven", "--json"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert json.loads(said.err)["exit_code"] == 2


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ([128.0, 130.0], [230.4, 200.2], "speed-up by recipe: 1.54x to 1.80x in 2 pairs of runs"),
        ([47.0, 109.0], [150.0, 160.0], "not comparable: the runs without the recipe differ by 2.32x"),
    ],
)
def test_the_demo_claims_what_its_runs_show(before: list[float], after: list[float], said: str) -> None:
    assert demo.compared(before, after).startswith(said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explain"], "next: autobrrr explain WORD "),
        (["explain", "overhead"], "next: autobrrr diagnose PID "),
        (["explain", "optimizer.fused"], "next: autobrrr tune PID --only optimizer.fused "),
        (["recipe", "ls"], "next: autobrrr recipe show NAME "),
        (["recipe", "new"], "next: autobrrr recipe new FILE "),
    ],
    ids=" ".join,
)
def test_a_result_ends_with_what_to_type_now(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 0
    assert capsys.readouterr().err.splitlines()[-1].startswith(said)
    for quiet in (["-q", *words], [words[0], "-q", *words[1:]], [*words, "-q"]):
        assert cli.main(quiet) == 0
        assert capsys.readouterr().err == ""


def test_a_recipe_leads_to_the_run_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    assert cli.main(["recipe", "new", str(file)]) == 0
    assert capsys.readouterr().err.endswith(f"then autobrrr recipe validate {file}\n")
    for words in (["show", str(file)], ["validate", str(file)], ["diff", str(file), str(file)]):
        assert cli.main(["recipe", *words]) == 0
        last = capsys.readouterr().err.splitlines()[-1]
        assert last == f"next: autobrrr run --recipe {file} -- CMD"


def test_an_error_says_what_and_what_to_do_and_nothing_on_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.complain(CannotAttach("pid 7 is stopped", "kill -CONT 7"), as_json=False) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "autobrrr: error: pid 7 is stopped\nhint: kill -CONT 7\n"


def test_an_error_in_json_is_one_object_on_standard_error_once_no_status_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli.NARRATOR, "clear", lambda: print("cleared", file=sys.stderr))
    cli.complain(CannotAttach("no", "yes"), as_json=True)
    said = capsys.readouterr()
    assert said.out == ""
    cleared, told = said.err.splitlines()
    assert cleared == "cleared"
    assert json.loads(told) == {"schema": 1, "error": "no", "hint": "yes", "exit_code": 3}


def test_a_terminal_without_unicode_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    plain = io.TextIOWrapper(written, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", plain)
    assert cli.main(["report", "demo"]) == 0
    plain.flush()
    assert b"Limited by host" in written.getvalue()
    print("\u2588\udcff", flush=True)
    assert written.getvalue().endswith(b"??\n")
