"""The database of a study: where it is, how it is opened, what is said when it does not answer.

In: a URL. Out: Optuna's storage. A password is in the URL that the driver gets, and in nothing that is shown,
kept or raised here.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import optuna
from optuna.exceptions import OptunaError, StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, ProgrammingError, SQLAlchemyError

from autobrrr.errors import EXIT_FAILED, EXIT_USAGE, AutobrrrError, UsageError

BEAT_S, GRACE_S = 15, 120  # a worker that is silent for longer is dead
RACES = 8  # workers that make the tables of an empty database at one time
SHAPE = "write postgresql://USER@HOST/DATABASE or sqlite:///FILE"
DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
    "postgresql+psycopg2": "postgresql+psycopg2",
}
# Of libpq: a server that is gone is noticed, and nothing waits for it without an end.
NETWORK = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
# What the user can mend in the command. Everything else is the world's.
OF_THE_USER = (
    "password authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
    "file is not a database",
    "invalid connection option",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a storage is. `url` is for the driver alone; `shown` is for people, without user and password."""

    url: str = field(repr=False)
    shown: str
    secrets: tuple[str, ...] = field(default=(), repr=False)


def address(text: str) -> Address:
    """Read a URL.

    Raises:
        UsageError: it can't be read, or is of another kind of database.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # it may hold a password: it is not repeated
        raise UsageError("--storage: not a database URL", SHAPE) from None
    if url.get_backend_name() == "sqlite":
        return _file_address(url.database)
    if url.drivername not in DRIVERS:
        raise UsageError(
            f"--storage {url.drivername}: this kind of database can't hold a shared study", SHAPE
        )
    if not url.database:
        raise UsageError("--storage: the URL names no database", SHAPE)
    url = url.set(drivername=DRIVERS[url.drivername])
    # Optuna takes the URL for a template.
    rendered = url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")
    port = f":{url.port}" if url.port else ""
    secrets = tuple(str(each) for each in (url.password, url.query.get("password")) if each)
    return Address(url=rendered, shown=f"postgresql://{url.host or ''}{port}/{url.database}", secrets=secrets)


def _file_address(name: str | None) -> Address:
    if not name or name == ":memory:":
        raise UsageError("--storage sqlite: an in-memory database can't be shared", SHAPE)
    file = Path(name).absolute()
    if file.is_dir() or not file.parent.is_dir():
        said = "a folder" if file.is_dir() else f"there is no folder {file.parent}"
        raise UsageError(f"--storage sqlite:///{name}: {said}")
    url = f"sqlite:///{file}".replace("{", "{{").replace("}", "}}")
    return Address(url=url, shown=f"sqlite:///{file}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """An open storage."""

    address: Address
    rdb: RDBStorage

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Around what asks the database.

        Raises:
            AutobrrrError: it does not answer, or refuses.
        """
        try:
            yield
        except (StorageInternalError, SQLAlchemyError) as error:
            raise unusable(self.address, error) from None

    def close(self) -> None:
        with contextlib.suppress(SQLAlchemyError):
            self.rdb.remove_session()
        self.rdb.engine.dispose()


def connect(place: Address) -> Storage:
    """Open a storage; an empty database gets Optuna's tables.

    Raises:
        UsageError: the driver is missing, or the server does not know the user or the database.
        AutobrrrError: nobody answers, or the tables can't be made.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed")  # we beat ourselves
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    for attempt in range(RACES):
        try:
            return Storage(address=place, rdb=_open(place))
        except ImportError:
            raise UsageError(
                "--storage postgresql needs psycopg, which is not installed here",
                "pip install 'autobrrr[postgres]'",
            ) from None
        except RuntimeError as error:  # tables of another version of Optuna
            raise AutobrrrError(f"{place.shown}: {error}") from None
        except (SQLAlchemyError, StorageInternalError) as error:
            raced = isinstance(_innermost(error), IntegrityError | ProgrammingError)
            raced = raced or "already exists" in str(error)  # as SQLite says it
            final = any(each in str(error) for each in ("permission denied", "connection option"))
            if not raced or final or attempt == RACES - 1:
                raise unusable(place, error) from None
            time.sleep(0.1 * (attempt + 1))
    raise AssertionError("not reached")


def _open(place: Address) -> RDBStorage:
    return RDBStorage(
        place.url,
        engine_kwargs={
            "pool_pre_ping": True,
            "connect_args": {"timeout": 30} if place.url.startswith("sqlite") else dict(NETWORK),
        },
        heartbeat_interval=BEAT_S,
        grace_period=GRACE_S,
    )


def unusable(place: Address, error: Exception) -> AutobrrrError:
    """What is said of an error of the database: the line of it that matters, never with a password."""
    text = str(getattr(_innermost(error), "orig", None) or _innermost(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    of_the_user = next((line for line in lines if any(each in line for each in OF_THE_USER)), None)
    said = re.sub(r"^.* failed: ", "", of_the_user or lines[0])
    for secret in place.secrets:
        said = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", said)
    if of_the_user is None or place.url.startswith("sqlite"):
        code = EXIT_FAILED if of_the_user is None else EXIT_USAGE
        return AutobrrrError(f"{place.shown} can't be used: {said}", exit_code=code)
    return UsageError(
        f"{place.shown} refused the connection: {said}",
        "check user, password and database of --storage; put the password into ~/.pgpass",
    )


def _innermost(error: Exception) -> Exception:
    """The database's own error; Optuna wraps it."""
    cause = error.__cause__
    return cause if isinstance(cause, SQLAlchemyError) else error


class Beat:
    """Says that a trial's worker lives, from a thread of its own, until it is stopped."""

    def __init__(self, storage: Storage, trial_id: int) -> None:
        self._storage = storage
        self._trial_id = trial_id
        self._over = threading.Event()
        storage.rdb.record_heartbeat(trial_id)
        self._thread = threading.Thread(target=self._go_on, name="beat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(1.0)

    def _go_on(self) -> None:
        while not self._over.wait(BEAT_S):
            with contextlib.suppress(OptunaError, SQLAlchemyError):  # the next beat, or the worker, will tell
                self._storage.rdb.record_heartbeat(self._trial_id)
