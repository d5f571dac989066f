"""The one family of errors that users see.

A message says what happened and where; a hint says what to do next; the exit code is part of
the command-line contract. Nothing else may end a command with a non-zero status.
"""

from __future__ import annotations

import shlex
import sys

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CANNOT_ATTACH = 3
EXIT_GONE = 4
EXIT_GUARD_UNDID = 5
EXIT_REFUSED = 6
EXIT_INTERRUPTED = 130
OF_ERRORS = range(EXIT_FAILED, EXIT_REFUSED + 1)


class AutobrrrError(Exception):
    """Something that the user can act on.

    Args:
        message: One sentence: what went wrong, and where.
        hint: One sentence: what to do next; the class's own where none is given.
        exit_code: Overrides the class's exit code.
    """

    exit_code = EXIT_FAILED
    usual_hint = ""

    def __init__(self, message: str, hint: str = "", *, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.usual_hint
        if exit_code is not None:
            self.exit_code = exit_code


class UsageError(AutobrrrError):
    """Wrong arguments, or a file that is not valid."""

    exit_code = EXIT_USAGE
    usual_hint = "autobrrr VERB --help shows what a verb takes"


class CannotAttach(AutobrrrError):
    """The target is there, but can't be entered safely. It was not changed."""

    exit_code = EXIT_CANNOT_ATTACH
    usual_hint = "autobrrr doctor PID says what is in the way"


class TargetGone(AutobrrrError):
    """The target ended, or never was."""

    exit_code = EXIT_GONE
    usual_hint = "autobrrr ls lists the training jobs that run"


class NotInstalled(AutobrrrError):
    """A verb needs an optional package that is not installed."""

    def __init__(self, package: str, verb: str) -> None:
        super().__init__(f"{verb} needs {package}, which is not installed here", install_line(package))


def install_line(package: str, prefix: str = sys.prefix, python: str = sys.executable) -> str:
    """The command that installs a package next to autobrrr, which no package index lists."""
    wanted = shlex.quote(package)
    if "/uv/tools/" in prefix:
        return f"uv pip install --python {shlex.quote(python)} {wanted}"
    if "/pipx/" in prefix:
        return f"pipx runpip autobrrr install {wanted}"
    return f"{shlex.quote(python)} -m pip install {wanted}"
