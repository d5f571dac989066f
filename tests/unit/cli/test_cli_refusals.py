"""What could only fail after the work is refused before it: places to write to, ports, threads."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from autobrrr.cli import main
from autobrrr.cli.printed import check_places
from autobrrr.cli.verbs import attach
from autobrrr.cli.verbs.tune import _search
from autobrrr.errors import UsageError
from autobrrr.relaunch.search.search_space import Result, Space
from support.relaunch import parameter


def test_a_file_is_not_written_into_what_is_no_folder_nor_over_one(tmp_path: Path) -> None:
    check_places(str(tmp_path / "new.html"))
    with pytest.raises(UsageError, match="is a folder"):
        check_places(str(tmp_path))
    with pytest.raises(UsageError, match="does not exist"):
        check_places(str(tmp_path / "none" / "new.html"))


@pytest.mark.parametrize("words", [["--threads", "100000"], ["--html", "/"]])
def test_the_machine_is_not_measured_for_what_can_t_be(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["roofline", "--device", "cpu", *words]) == 2
    what, hint = capsys.readouterr().err.splitlines()
    assert what.startswith("autobrrr: error: ")
    assert hint.startswith("hint: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "hint"),
    [(["1", "--html", "x"], "autobrrr report PID --html"), (["--trials", "3"], "autobrrr tune --trials …")],
)
def test_an_option_of_a_script_is_named_where_none_is_started(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *words]) == 2
    said = capsys.readouterr().err
    assert f"{next(word for word in words if word[0] == '-')} is for a script that is started" in said
    assert hint in said


def test_a_browser_is_served_this_command_once_for_all_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[int] = []
    monkeypatch.setattr(attach, "serve", lambda port: served.append(port) or 0)
    assert main(["attach", "1", "--web", "--foreground"]) == 2
    assert main(["attach", "1", "--web", "--for", "1.5m", "--readonly"]) == 0
    monkeypatch.setenv("TEXTUAL_DRIVER", "a page of it")
    assert main(["attach", str(2**22 + 1), "--web"]) != 0
    assert served == [8000]


def test_two_runs_of_a_command_share_its_study_and_without_a_folder_it_is_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    space = Space(parameters=(parameter("--workers", 3),))
    args = SimpleNamespace(trials=None)
    first = _search(args, ["python", "train.py"], space, None)  # type: ignore[arg-type]
    second = _search(args, ["python", "train.py"], space, None)  # type: ignore[arg-type]
    assert (first.ask(), second.ask()) == ((1,), (2,))
    first.tell(Result(point=(1,), value=0.1, kind="measured"))
    first.close()
    assert capsys.readouterr().err == ""
    (tmp_path / "autobrrr" / "studies").rename(tmp_path / "moved")
    (tmp_path / "autobrrr" / "studies").touch()
    third = _search(args, ["python", "train.py"], space, None)  # type: ignore[arg-type]
    assert "the study is kept in memory" in capsys.readouterr().err
    assert third.ask() == (1,)
