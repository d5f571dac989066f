"""Plants the faults of `mutants.toml` one by one in a copy of the tree and says which the tests find.

`python tests/mutants.py [GROUP ...]`; exit 1 where one survives or no longer fits the code.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
COPIED = (
    "autobrrr",
    "tui",
    "tests",
    "benchmarks",
    "docs",
    "recipes",
    "pyproject.toml",
    "README.md",
    "Makefile",
)


def found(copy: Path, tests: list[str]) -> bool:
    """Whether a test fails. Runs them in a fork, which has all large libraries and nothing of ours."""
    pid = os.fork()
    if pid == 0:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        os.chdir(copy)
        sys.path[:0] = [str(copy / each) for each in ("", "tui", "tests")]
        words = ["-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not nightly", "-k", "not compile"]
        os._exit(int(pytest.main([*words, *tests])))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 1), f"pytest ended with {code} on {tests}"
    return code == 1


def outcome(copy: Path, name: str, old: str, new: str, tests: list[str]) -> str:
    file = copy / name
    text = file.read_text() if file.exists() else ""
    if old not in text:
        return "GONE"
    file.write_text(text.replace(old, new, 1))
    try:
        for stale in file.parent.glob(f"__pycache__/{file.stem}.*"):  # written within the same second
            stale.unlink()
        return "killed" if found(copy, tests) else "SURVIVED"
    finally:
        file.write_text(text)
        for stale in file.parent.glob(f"__pycache__/{file.stem}.*"):
            stale.unlink()


def main(groups: list[str]) -> int:
    for library in ("torch", "scipy.stats", "hypothesis", "msgspec", "optuna", "torch._dynamo"):
        importlib.import_module(library)
    table = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text())
    count: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        for name in COPIED:
            place = ROOT / name
            (shutil.copytree if place.is_dir() else shutil.copy)(place, copy / name)
        for group in groups or list(table):
            tests = table[group]["tests"]
            assert not found(copy, tests), f"{group}: tests fail without a fault"
            for name, changes in table[group]["mutants"].items():
                for old, new in changes:
                    said = outcome(copy, name, old, new, tests)
                    count[said] = count.get(said, 0) + 1
                    print(
                        f"{said:9}{group}: {Path(name).name}: {old.strip()!r} -> {new.strip()!r}", flush=True
                    )
    print(", ".join(f"{number} {said}" for said, number in sorted(count.items())))
    return int(set(count) != {"killed"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
