"""A session log as text: the last verdict, what was tried, how it ended."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from autobrrr.errors import UsageError
from autobrrr.records import Diagnosis, Trial, Tuning
from autobrrr.report.text import verdict_text
from autobrrr.report.tuning import trial_line, tuning_table


def report_text(path: Path) -> str:
    """What a person wants to know of a past session.

    Raises:
        UsageError: the file can't be read, or holds no session.
    """
    last: Diagnosis | None = None
    tuned: Tuning | None = None
    trials: list[Trial] = []
    ended = ""
    try:
        for kind, body in _entries(path):
            try:
                if kind == "snapshot":
                    last = msgspec.convert(body, Diagnosis)
                elif kind == "tuned":
                    tuned, trials = msgspec.convert(body, Tuning), []
                elif kind == "trial":
                    trials.append(msgspec.convert(body, Trial))
                elif kind == "ended":
                    ended = str(body.get("why", ""))
            except msgspec.ValidationError:
                continue
    except (OSError, EOFError) as error:
        raise UsageError(f"{path} can't be read: {error}") from None
    if last is None:
        raise UsageError(f"{path} holds no snapshot of a session", "a session writes one when it ends")
    parts = [verdict_text(last)]
    if tuned is not None:
        parts.append(tuning_table(tuned))
    if trials:
        parts.append("\n".join(trial_line(trial) for trial in trials))
    seconds = (last.t_ns or 0) / 1e9
    parts.append(
        f"session of {seconds:.0f} s, {last.steps or 0} steps; {ended or 'its end is missing'}\nlog: {path}"
    )
    return "\n\n".join(parts)


def _entries(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    """Kind and body of every whole line; others are left out."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        for line in lines:
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            kind, body = (found.get("kind"), found.get("body")) if isinstance(found, dict) else (None, None)
            if isinstance(kind, str) and isinstance(body, dict):
                yield kind, body
