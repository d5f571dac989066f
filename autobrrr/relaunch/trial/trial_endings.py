"""How a trial ended, and why, told from its exit code and the last lines that it printed.

In: what the study saw. Out: an `TrialEnding` with one clear reason. An ending is a result of the study, not
its failure.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal[
    "measured",
    "oom",
    "crash",
    "hang",
    "nan",
    "no_steps",
    "too_short",
    "background",
    "asks",
    "refused_flag",
    "disk_full",
    "no_permission",
    "no_start",
    "not_applied",
    "no_device_stamps",
    "port_taken",
]
REASON_CHARACTERS = 200
MOST_LINES, MOST_BYTES = 12, 1 << 16
_OF_OUTPUT: tuple[tuple[Kind, str, str], ...] = (
    ("oom", r"out ?of ?memory|(can't|cannot) allocate memory|\bMemoryError\b|bad_alloc", "out of memory"),
    ("asks", r"EOFError: EOF when reading a line", "it waits for an answer on standard input"),
    ("disk_full", r"No space left on device|Disk quota exceeded", "no space left on the device it writes to"),
    ("port_taken", r"Address already in use|EADDRINUSE", "its port is taken"),
    (
        "no_permission",
        r"Permission denied|Read-only file system|Value too large for defined data type",
        "it may not write or read a file",
    ),
)
_REFUSED_FLAG = re.compile(
    r"error: (unrecognized arguments|argument [^:]+:|ambiguous option|the following arguments).*"
    r"|Error: (No such option|Invalid value|Got unexpected).*|.*unrecognized arguments.*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnding:
    """How a trial ended. `lines` are the last that it printed; None of `code`: it was stopped by us."""

    kind: Kind
    why: str
    code: int | None = None
    lines: tuple[str, ...] = ()

    @property
    def is_orderly(self) -> bool:
        """It came to its end by itself, and trained until then."""
        return self.kind == "too_short"


def ending_of(code: int, lines: tuple[str, ...], *, steps: int, left: int) -> TrialEnding:
    """The ending of a script that has ended by itself.

    Args:
        code: Its exit code, negative for a signal.
        lines: The last lines of its output.
        steps: Training steps that were seen.
        left: Processes of it that went on.
    """
    kind, why = _reason(code, lines, steps, left)
    return TrialEnding(kind=kind, why=why, code=code, lines=lines)


def _reason(code: int, lines: tuple[str, ...], steps: int, left: int) -> tuple[Kind, str]:
    if code == 0:
        if steps:
            return "too_short", f"it ended after {steps} steps, too few to measure"
        if left:
            why = f"it went into the background: its process ended, but {left} of its processes continued"
            return "background", why
        return "no_steps", "it ended without a training step"
    if code == 2:
        refused = next((found for line in reversed(lines) if (found := _REFUSED_FLAG.search(line))), None)
        if refused is not None:
            return "refused_flag", _shorten(refused.group(0))
    for kind, pattern, said in _OF_OUTPUT:
        for line in reversed(lines):
            if re.search(pattern, line, re.IGNORECASE):
                return kind, _shorten(f"{said}: {line.strip()}")
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return "oom", "killed by the system, probably because memory ran out"
    named = {each.value: each.name for each in signal.Signals}  # most real-time signals have no name
    how = f"killed by {named.get(-code, f'signal {-code}')}" if code < 0 else f"exit code {code}"
    last = lines[-1] if lines else "it printed nothing"
    return "crash", _shorten(f"{how}: {last}")


def _shorten(text: str) -> str:
    text = text.strip()
    return text if len(text) <= REASON_CHARACTERS else text[: REASON_CHARACTERS - 3] + "..."


def last_lines(output: Path) -> tuple[str, ...]:
    """The last lines of an output that hold something, oldest first.

    Progress bars that overwrite their line count once.
    """
    try:
        with output.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ()
    whole = [line.rsplit("\r", 1)[-1].rstrip() for line in re.split(r"\r?\n", text.rstrip("\r\n"))]
    shown = ("".join(c for c in line if c.isprintable() or c == "\t")[:500] for line in whole)
    return tuple([line for line in shown if line.strip()][-MOST_LINES:])
