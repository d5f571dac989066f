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
from dataclasses import dataclass

import optuna
from optuna.exceptions import OptunaError, StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, ProgrammingError, SQLAlchemyError

from autobrrr.errors import AutobrrrError, UsageError, install_line

BEAT_S, GRACE_S = 15, 120  # a worker that is silent for longer is dead
RACES = 8  # workers that make the tables of an empty database at one time
SHAPE = "write postgresql://USER@HOST/DATABASE or sqlite:///FILE"
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
    *("authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry"),
    *("file is not a database", "unable to open database file", "invalid connection option"),
)


def address(text: str) -> URL:
    """Read a URL.

    Raises:
        UsageError: it can't be read, or is of another kind of database.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # it may hold a password: it is not repeated
        raise UsageError("--storage: not a database URL", SHAPE) from None
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername not in ("postgresql+psycopg", "postgresql+psycopg2", "sqlite"):
        raise UsageError(
            f"--storage {url.drivername}: this kind of database can't hold a shared study", SHAPE
        )
    if url.database in (None, "", ":memory:"):
        raise UsageError("--storage: the URL names no database that can be shared", SHAPE)
    return url


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """An open storage. `shown` is its address for people, without user and password."""

    shown: str
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
            raise AutobrrrError(f"{self.shown} can't be used: {_said(error)}") from None

    def beat(self, trial_id: int) -> threading.Event:
        """Record now and then, in a thread, that a trial's worker lives; until the event is set."""
        over = threading.Event()

        def go_on() -> None:
            while not over.wait(BEAT_S):
                with contextlib.suppress(OptunaError, SQLAlchemyError):  # the next beat, or the worker, tells
                    self.rdb.record_heartbeat(trial_id)

        self.rdb.record_heartbeat(trial_id)
        threading.Thread(target=go_on, name="beat", daemon=True).start()
        return over

    def close(self) -> None:
        with contextlib.suppress(SQLAlchemyError):
            self.rdb.remove_session()
        self.rdb.engine.dispose()


def connect(url: URL) -> Storage:
    """Open a storage; an empty database gets Optuna's tables.

    Raises:
        UsageError: the driver is missing, or the server does not know the user or the database.
        AutobrrrError: nobody answers, or the tables can't be made.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed")  # we beat ourselves
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    bare = URL.create(url.get_backend_name(), host=url.host, port=url.port, database=url.database)
    for attempt in range(1, RACES + 1):
        try:
            return Storage(shown=str(bare), rdb=_open(url))
        except ImportError:
            raise UsageError(
                "--storage postgresql needs psycopg, which is not installed here",
                install_line("psycopg[binary]"),
            ) from None
        except (RuntimeError, SQLAlchemyError, StorageInternalError) as error:
            own, said = _own(error), _said(error)
            raced = isinstance(own, IntegrityError | ProgrammingError) or "already exists" in said
            kind = UsageError if any(mark in said for mark in OF_THE_USER) else AutobrrrError
            hint = "check user, password and database of --storage; put the password into ~/.pgpass"
            if attempt == RACES or not raced:
                raise kind(f"{bare} can't be used: {said}", hint) from None
            time.sleep(0.1 * attempt)
    raise AssertionError("not reached")


def _open(url: URL) -> RDBStorage:
    is_file = url.drivername == "sqlite"
    return RDBStorage(
        # Optuna takes the URL for a template.
        url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}"),
        engine_kwargs={"pool_pre_ping": True, "connect_args": {"timeout": 30} if is_file else dict(NETWORK)},
        heartbeat_interval=BEAT_S,
        grace_period=GRACE_S,
    )


def _said(error: Exception) -> str:
    """The first line of the database's own words."""
    text = str(getattr(_own(error), "orig", None) or _own(error)).strip()
    return re.sub(r"^.* failed: ", "", text.split("\n")[0])


def _own(error: Exception) -> Exception:
    """The database's own error; Optuna wraps it."""
    cause = error.__cause__
    return cause if isinstance(cause, SQLAlchemyError) else error
