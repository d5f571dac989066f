"""Two revisions of a repository, each in a folder of its own; the repository itself is not touched.

In: `BASE..HEAD` and the working folder. Out: the same folder in both revisions, as they were committed: no
file that is not tracked, no submodule.
"""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from autobrrr.errors import UsageError

HINT = "write --git main..HEAD"


def revision_folders(span: str, folder: Path, place: Path, tell: Callable[[str], None]) -> tuple[Path, Path]:
    """Folders in which the command runs before and after.

    Raises:
        UsageError: it is no repository, or has no such revisions, or the folder is not in one of them.
    """
    base, dots, head = span.partition("..")
    if not dots or not base or head.startswith("."):
        raise UsageError(f"--git {span}: not two revisions", HINT)
    top = Path(_git(folder, "rev-parse", "--show-toplevel").decode().strip())
    inside = folder.resolve().relative_to(top.resolve())
    if _git(folder, "status", "--porcelain", "--untracked-files=no"):
        tell("the working tree has changes that are not committed: they are in neither side")
    names = [
        _git(folder, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
        for revision in (base, head or "HEAD")
    ]
    tell(f"before: {names[0][:12]}, after: {names[1][:12]}, each as it was committed")
    found = []
    for number, name in enumerate(names):
        if b"160000 commit" in _git(top, "ls-tree", "-r", name):
            tell(f"{name[:12]} has submodules: they are left out")
        target = place / f"{number}" / top.name
        target.mkdir(parents=True)
        with tarfile.open(fileobj=BytesIO(_git(top, "archive", "--format=tar", name))) as archive:
            archive.extractall(target, filter="data") if hasattr(
                tarfile, "data_filter"
            ) else archive.extractall(target)
        if not (target / inside).is_dir():
            raise UsageError(f"--git {span}: {inside} is not in {name[:12]}")
        found.append(target / inside)
    return found[0], found[1]


def _git(folder: Path, *words: str) -> bytes:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, check=False, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise UsageError(f"git can't be run: {error.strerror}") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(f"git {words[0]}: {lines[-1] if lines else 'it failed'}", HINT)
    return done.stdout
