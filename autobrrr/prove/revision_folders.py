"""Two revisions of a repository, each in a folder of its own; the repository itself is not touched.

In: `BASE..HEAD`, the working folder, how the command is started there. Out: how it is started in both
revisions, as they were committed: no file that is not tracked, no submodule.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autobrrr.errors import UsageError
from autobrrr.relaunch.trial.live_trial import TrialLaunch

HINT = "write --git main..HEAD"
QUIET = {"GIT_OPTIONAL_LOCKS": "0"}  # looking at the state refreshes no index
PLAIN = ("-c", "core.sparseCheckout=false", "-c", "core.fsmonitor=false")  # our checkout is whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One revision.

    Attributes:
        name: Of its commit.
        top: Of the repository.
        target: The folder that holds the revision.
        inside: The working folder, from the top.
    """

    name: str
    top: Path
    target: Path
    inside: Path

    @property
    def folder(self) -> Path:
        """The working folder in this revision."""
        return self.target / self.inside

    def launch(self, given: TrialLaunch) -> TrialLaunch:
        """The command in this revision; an interpreter that is not tracked stays where it is."""
        program, *words = given.command
        if "/" in program and not (self.folder / program).exists() and (given.folder / program).exists():
            program = str(given.folder / program)
        env = dict(given.environment)
        if "PYTHONPATH" in env:
            env["PYTHONPATH"] = os.pathsep.join(map(self._moved, env["PYTHONPATH"].split(os.pathsep)))
        return replace(given, command=(program, *words), folder=self.folder, environment=env)

    def _moved(self, path: str) -> str:
        """A folder of the repository, in this revision."""
        here = Path(path)
        if not here.is_absolute() or not here.resolve().is_relative_to(self.top):
            return path
        return str(self.target / here.resolve().relative_to(self.top))


def revisions(span: str, folder: Path, place: Path, tell: Callable[[str], None]) -> tuple[Revision, Revision]:
    """Check both out, into `place`.

    Raises:
        UsageError: it is no repository, or has no such revisions, or the folder is not in one of them.
    """
    base, dots, head = span.partition("..")
    if not dots or not base or head.startswith("."):
        raise UsageError(f"--git {span}: not two revisions", HINT)
    top = Path(os.fsdecode(_git(folder, "rev-parse", "--show-toplevel").removesuffix(b"\n"))).resolve()
    inside = folder.resolve().relative_to(top)
    if _git(folder, "status", "--porcelain", "--untracked-files=no"):
        tell("the working tree has changes that are not committed: they are in neither side")
    names = [_commit(folder, revision) for revision in (base, head or "HEAD")]
    tell(f"before: {names[0][:12]}, after: {names[1][:12]}, each as it was committed")
    found = []
    for number, name in enumerate(names):
        listed = _git(top, "ls-tree", "-r", "-z", name).split(b"\0")
        if any(each.startswith(b"160000 ") for each in listed):
            tell(f"{name[:12]} has submodules: they are left out")
        target = place / f"{number}" / top.name
        target.mkdir(parents=True)
        index = {"GIT_INDEX_FILE": str(target.parent / "index")}
        _git(top, f"--work-tree={target}", "read-tree", "--reset", "-u", name, variables=index)
        found.append(Revision(name=name, top=top, target=target, inside=inside))
        if not found[-1].folder.is_dir():
            raise UsageError(f"--git {span}: {inside} is not in {name[:12]}")
    return found[0], found[1]


def refuse_shared_code(imported: list[object], top: Path) -> None:
    """Code that runs from the repository itself is the same on both sides.

    Args:
        imported: Folders that the modules of a side came from.

    Raises:
        UsageError: one is in the repository.
    """
    shared = next((str(each) for each in imported if Path(str(each)).is_relative_to(top)), None)
    if shared is not None:
        raise UsageError(
            f"both revisions run the code of {shared}, as it is now: they can't be told apart",
            "name the script by a relative path; for a package that is installed from here, put its folder"
            " into PYTHONPATH",
        )


def _commit(folder: Path, revision: str) -> str:
    """The name of a revision's commit."""
    try:
        found = _git(folder, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    except UsageError:
        why = f"--git: this repository has no commit {revision}"
        raise UsageError(why, f"{HINT}; a shallow clone needs its history: git fetch --unshallow") from None
    return found.decode().strip()


def _git(folder: Path, *words: str, variables: Mapping[str, str] = QUIET) -> bytes:
    env = {**os.environ, **variables}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *PLAIN, *words],
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            env=env,
        )
    except OSError as error:
        raise UsageError(f"git can't be run: {error.strerror}") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        verb = next(word for word in words if not word.startswith("-"))
        raise UsageError(f"git {verb}: {lines[-1] if lines else 'it failed'}", HINT)
    return done.stdout
