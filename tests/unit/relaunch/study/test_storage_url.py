"""URLs of storages: what the driver gets, what people see, what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from optuna.exceptions import StorageInternalError
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import OperationalError

from autobrrr.cli import main
from autobrrr.errors import AutobrrrError, UsageError, install_line
from autobrrr.relaunch.search import study_storage


def opened_as(monkeypatch: pytest.MonkeyPatch, text: str) -> tuple[URL, str]:
    """What the driver gets, and what people see."""
    monkeypatch.setattr(study_storage, "RDBStorage", lambda url, **_: make_url(url.format()))
    found = study_storage.connect(study_storage.address(text))
    return found.rdb, found.shown  # type: ignore[return-value]


def test_the_driver_gets_the_password_and_people_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://me:p%40ss%7Bw%7D@db.example:5433/studies?password=0ther"
    given, shown = opened_as(monkeypatch, url)
    assert given.drivername == "postgresql+psycopg"
    assert given.password == "p@ss{w}"
    assert shown == "postgresql://db.example:5433/studies"


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_one_driver_serves_all_names_of_postgresql(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given, shown = opened_as(monkeypatch, f"{scheme}:///studies?host=/run/postgresql")
    assert given.drivername == "postgresql+psycopg"
    assert shown == "postgresql:///studies"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("rubbish", "not a database URL"),
        ("", "not a database URL"),
        ("postgresql://me:sesame@host:port/x", "not a database URL"),
        ("postgresql://me:sesame@host", "names no database"),
        ("mysql://me:sesame@host/x", "can't hold a shared study"),
        ("sqlite+pysqlite:///study.db", "can't hold a shared study"),
        ("postgresql+asyncpg://me:sesame@host/x", "can't hold a shared study"),
        ("sqlite://", "names no database"),
        ("sqlite:///:memory:", "names no database"),
        ("sqlite:////no/such/folder/study.db", "unable to open database file"),
    ],
)
def test_what_can_t_be_shared_is_an_error_before_anything_starts(
    url: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "--storage", url, "--param", "gc.freeze", "--", "python", "train.py"]) == 2
    said = capsys.readouterr().err
    first, *more = said.rstrip("\n").split("\n")
    assert says in first
    assert [line.partition(":")[0] for line in more] in ([], ["hint"])
    assert "sesame" not in said


def test_a_study_is_named_in_a_storage_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--study", "mine", "--param", "gc.freeze", "--", "python", "train.py"]) == 2
    assert "--storage" in capsys.readouterr().err


def test_a_missing_driver_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UsageError) as error:
        study_storage.connect(study_storage.address("postgresql://me@localhost/studies"))
    assert error.value.hint == install_line("psycopg[binary]")


def test_a_file_that_is_no_database_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("of the user\n" * 100)
    with pytest.raises(AutobrrrError, match="file is not a database") as error:
        study_storage.connect(study_storage.address(f"sqlite:///{file}"))
    assert error.value.exit_code == 2
    assert file.read_text() == "of the user\n" * 100


def refused(text: str) -> OperationalError:
    return OperationalError("select 1", {}, Exception(text))


def test_a_server_that_does_not_answer_ends_the_worker_with_one_line() -> None:
    opened = study_storage.Storage(shown="postgresql://localhost/studies", rdb=None)  # type: ignore[arg-type]
    dropped = StorageInternalError("An exception is raised during the commit.")
    dropped.__cause__ = refused("server closed the connection unexpectedly")
    for error in (refused("server closed the connection unexpectedly"), dropped):
        with pytest.raises(AutobrrrError, match="used: server closed") as told, opened.answering():
            raise error
        assert told.value.exit_code == 1


@pytest.mark.parametrize(
    ("text", "code"), [('password authentication failed for user "me"', 2), ("Connection refused", 1)]
)
def test_only_what_the_command_can_mend_is_a_usage_error(
    text: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_storage, "_open", lambda url: (_ for _ in ()).throw(refused(text)))
    with pytest.raises(AutobrrrError, match=text) as told:
        study_storage.connect(study_storage.address("postgresql://me@db.example/studies"))
    assert told.value.exit_code == code


def test_a_worker_that_made_the_tables_of_a_file_at_the_same_time_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers: list[object] = [refused("table studies already exists"), None]

    def opened(url: URL) -> object:
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    monkeypatch.setattr(study_storage, "_open", opened)
    study_storage.connect(study_storage.address(f"sqlite:///{tmp_path}/study.db"))
    assert answers == []
