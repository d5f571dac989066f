"""The file in which a study of this machine alone is kept, for one run at a time.

In: the command, its folder, variables, the space. Out: a file, an Optuna storage in it, a hold on it: a
second run of the same command would take the first one's open trials for abandoned ones.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autobrrr import paths
from autobrrr.recipe import script_of
from autobrrr.relaunch.search.search_space import Space

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

DEVICES = "CUDA_VISIBLE_DEVICES"


class Busy(Exception):
    """Another run has the study."""


class Hold:
    """A study's file is this run's until it is let go, or the process ends however it may.

    Raises:
        Busy: it is another's.
        OSError: nothing can be held there.
    """

    def __init__(self, file: Path) -> None:
        self._fd = os.open(file.with_suffix(".held"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.let_go()
            raise Busy from None
        except OSError:
            self.let_go()
            raise

    def let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def study_file(
    state: Path, command: Sequence[str], folder: Path, space: Space, environment: Mapping[str, str]
) -> Path:
    """Where a study is kept: named by all that its results hold for.

    That is the command and its script's text, the space with the levels that are given already, the machine
    and the devices that are visible.

    Raises:
        OSError: the folder can't be made.
    """
    what = [
        list(command),
        str(folder),
        _text_of(command, folder),
        [(each.name, each.levels, each.given) for each in space.parameters],
        space.accumulate,
        space.allowed,
        socket.gethostname(),
        environment.get(DEVICES),
    ]
    name = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]
    where = state / "studies"
    paths.make_closed(where)
    return where / f"{name}.journal"


def _text_of(command: Sequence[str], folder: Path) -> str | None:
    """Digest of the script, or of the module that is run; None where it can't be found."""
    script = script_of(command)
    if script is None and "-m" in command[:-1]:
        script = command[command.index("-m") + 1].replace(".", "/") + ".py"
    try:
        return None if script is None else hashlib.sha256((folder / script).read_bytes()).hexdigest()
    except OSError:
        return None


def make_room(file: Path) -> None:
    """Set an earlier study aside that is finished, or can't be read."""
    if file.exists() and _is_finished(file):
        file.rename(file.with_suffix(".finished"))


def storage(file: Path) -> BaseStorage:
    """Optuna's storage in a file."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(str(file)))


def _is_finished(file: Path) -> bool:
    try:
        return bool(storage(file).get_all_studies()[0].user_attrs.get("finished"))
    except (IndexError, KeyError, ValueError, OSError):
        return True  # it can't be read: set aside, never overwritten


def study_name(command: Sequence[str], folder: Path, space: Space) -> str:
    """The name that workers agree on without a word: of the command, the script's text and the space.

    The folder's place may differ from machine to machine, as may the interpreter's; their names may not.
    """
    script = script_of(command)
    words = [Path(word).name if i == 0 or word == script else word for i, word in enumerate(command)]
    levels = [(each.name, each.levels) for each in space.parameters]
    what = [words, folder.name, _text_of(command, folder), levels, space.accumulate, space.allowed]
    return f"autobrrr-{hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]}"
