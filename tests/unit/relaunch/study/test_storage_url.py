"""URLs of storages: what the driver gets, what people see, what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from optuna.exceptions import StorageInternalError
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from autobrrr.cli import main
from autobrrr.errors import AutobrrrError, UsageError
from autobrrr.relaunch.search import study_storage


def test_the_driver_gets_the_password_and_people_do_not() -> None:
    place = study_storage.address("postgresql://me:p%40ss%7Bw%7D@db.example:5433/studies?password=0ther")
    given = make_url(place.url.format())  # Optuna fills its template in
    assert given.drivername == "postgresql+psycopg"
    assert given.password == "p@ss{w}"
    assert place.shown == "postgresql://db.example:5433/studies"
    assert "p@ss" not in repr(place)
    assert "0ther" not in repr(place)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_one_driver_serves_all_names_of_postgresql(scheme: str) -> None:
    place = study_storage.address(f"{scheme}:///studies?host=/run/postgresql")
    assert make_url(place.url).drivername == "postgresql+psycopg"
    assert place.shown == "postgresql:///studies"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("rubbish", "not a database URL"),
        ("", "not a database URL"),
        ("postgresql://me:sesame@host:port/x", "not a database URL"),
        ("postgresql://me:sesame@host", "names no database"),
        ("mysql://me:sesame@host/x", "can't hold a shared study"),
        ("postgresql+asyncpg://me:sesame@host/x", "can't hold a shared study"),
        ("sqlite://", "in-memory database can't be shared"),
        ("sqlite:///:memory:", "in-memory database can't be shared"),
        ("sqlite:////no/such/folder/study.db", "no folder /no/such/folder"),
        ("sqlite:////tmp", "a folder"),
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
    assert error.value.hint == "pip install 'autobrrr[postgres]'"


def test_a_file_that_is_no_database_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("of the user\n" * 100)
    with pytest.raises(AutobrrrError, match="file is not a database") as error:
        study_storage.connect(study_storage.address(f"sqlite:///{file}"))
    assert error.value.exit_code == 2
    assert file.read_text() == "of the user\n" * 100


def refused(text: str) -> OperationalError:
    return OperationalError("select 1", {}, Exception(text))


def test_a_password_in_the_database_s_own_words_is_struck_out() -> None:
    place = study_storage.address("postgresql://me:sesame@localhost/studies")
    told = study_storage.unusable(place, refused("connection to x failed: FATAL:  who says sesame?\nmore"))
    assert told.message == "postgresql://localhost/studies can't be used: FATAL:  who says ***?"


def test_a_server_that_does_not_answer_ends_the_worker_with_one_line() -> None:
    place = study_storage.address("postgresql://me:sesame@localhost/studies")
    opened = study_storage.Storage(address=place, rdb=None)  # type: ignore[arg-type]
    dropped = StorageInternalError("An exception is raised during the commit.")
    dropped.__cause__ = refused("server closed the connection unexpectedly")
    for error in (refused("server closed the connection unexpectedly"), dropped):
        with pytest.raises(AutobrrrError, match="used: server closed") as told, opened.answering():
            raise error
        assert told.value.exit_code == 1


def test_a_worker_that_made_the_tables_of_a_file_at_the_same_time_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers: list[object] = [refused("table studies already exists"), None]

    def opened(place: study_storage.Address) -> object:
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    monkeypatch.setattr(study_storage, "_open", opened)
    study_storage.connect(study_storage.address(f"sqlite:///{tmp_path}/study.db"))
    assert answers == []
