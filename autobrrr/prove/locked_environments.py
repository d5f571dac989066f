"""An environment for each of two lists of packages: made once, found again by what the list says.

In: a requirements or lock file, the interpreter, a cache folder. Out: a virtual environment with just these
packages, and how two of them differ. One that could not be made whole is taken away.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from autobrrr.errors import AutobrrrError, UsageError
from autobrrr.machine import procfs
from autobrrr.paths import make_private
from autobrrr.records.proof_records import PackageChange

ELSEWHERE = re.compile(r"^\s*(-e|--editable|-r|--requirement|-c|--constraint)\b.*", re.MULTILINE)
MADE = "made"  # a file that is written last


def locked_environment(lock: Path, python: str, cache: Path, tell: Callable[[str], None]) -> Path:
    """The folder of the environment of a lock file, for the interpreter that the command names.

    Args:
        python: A name on PATH, or a path.
        tell: Hears one line, where it has to be made.

    Raises:
        UsageError: the file can't be read, or names what is not in it; there is no such interpreter.
        AutobrrrError: its packages can't be installed.
    """
    try:
        text = lock.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--env {lock}: it can't be read: {error}") from None
    if lock.suffix in (".toml", ".yml", ".yaml") or lock.name in ("poetry.lock", "uv.lock", "conda.lock"):
        raise UsageError(
            f"--env {lock}: not a list of requirements",
            "write one with pip freeze, or export it from the lock file",
        )
    outside = ELSEWHERE.search(text)
    if outside is not None:
        raise UsageError(
            f"--env {lock}: {outside.group(0).strip()!r} names what may change beside it",
            "name every package in this one file",
        )
    found = shutil.which(python)
    if found is None or not procfs.is_python(python):
        raise UsageError(
            f"{python}: with --env, the command begins with an interpreter", "-- python train.py"
        )
    version = _said(
        [found, "-c", "import sys; print(sys.version, sys.base_prefix, sys.base_exec_prefix)"], lock
    )
    digest = hashlib.sha256(f"{version}\n{text}".encode()).hexdigest()[:24]
    place = cache / "environments"
    make_private(place)
    made = place / digest
    with (place / f"{digest}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # somebody else may be making it
        if not (made / MADE).exists():
            tell(f"installing what {lock} names")
            _make(made, found, lock)
    return made


def python_of(environment: Path) -> Path:
    """Its interpreter."""
    return environment / "bin" / "python"


def package_changes(before: Path, after: Path) -> list[PackageChange]:
    """What differs, by name."""
    its, mine = _packages(before), _packages(after)
    return [
        PackageChange(name=name, before=its.get(name), after=mine.get(name))
        for name in sorted({*its, *mine})
        if its.get(name) != mine.get(name)
    ]


def _packages(environment: Path) -> dict[str, str]:
    """Versions by name."""
    places = [str(each) for each in environment.glob("lib/python*/site-packages")]
    return {each.name.lower().replace("_", "-"): each.version for each in metadata.distributions(path=places)}


def _make(made: Path, python: str, lock: Path) -> None:
    shutil.rmtree(made, ignore_errors=True)
    try:
        _said([python, "-m", "venv", str(made)], lock)
        install = ("-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet")
        _said([str(python_of(made)), *install, "--requirement", str(lock.resolve())], lock)
        (made / MADE).touch()
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _said(words: list[str], lock: Path) -> str:
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=env
    )
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
        first = next(iter(errors or lines[-1:]), "it failed")
        raise AutobrrrError(
            f"no environment could be made of {lock}: {first}",
            f"python -m pip install -r {lock} in a new virtual environment shows all of it",
        )
    return done.stdout
