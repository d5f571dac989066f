"""Small git repositories."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


def repository(top: Path, files: Mapping[str, str]) -> Path:
    """A new one, with one commit on `main`."""
    top.mkdir(parents=True)
    git(top, "init", "-q", "-b", "main")
    commit(top, files)
    return top


def commit(top: Path, files: Mapping[str, str]) -> None:
    """Write files and commit all that is not ignored."""
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "a change")


def git(top: Path, *words: str) -> None:
    """Run git there, with no settings of the user."""
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", "-C", str(top), *who, *words], check=True, env=env)
