"""A session log read: the last verdict, what was tried, how it ended; and that as text."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from autobrrr.errors import UsageError
from autobrrr.records import Diagnosis, Trial, Tuning
from autobrrr.report.sweep import sweep_text
from autobrrr.report.text import verdict_text
from autobrrr.report.tuning import trial_line, tuning_table


@dataclass(frozen=True, slots=True, kw_only=True)
class PastSession:
    """What a session log holds, as far as it can be read."""

    path: Path
    last: Diagnosis  # the last snapshot
    tuned: Tuning | None  # the last tuning that came to its end
    trials: list[Trial]  # of one that did not
    ended: str


def past_session(path: Path) -> PastSession:
    """Read a session log.

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
    return PastSession(path=path, last=last, tuned=tuned, trials=trials, ended=ended)


def report_text(path: Path) -> str:
    """What a person wants to know of a past session.

    Raises:
        UsageError: the file can't be read, or holds no session.
    """
    found = past_session(path)
    texts = [verdict_text(found.last)]
    if found.last.sweep is not None:
        texts[0] += f"\n{sweep_text(found.last.sweep)}"
    if found.tuned is not None:
        texts.append(tuning_table(found.tuned))
    if found.trials:
        texts.append("\n".join(trial_line(trial) for trial in found.trials))
    seconds = (found.last.t_ns or 0) / 1e9
    ended = found.ended or "its end is missing"
    texts.append(f"session of {seconds:.0f} s, {found.last.steps or 0} steps; {ended}\nlog: {path}")
    return "\n\n".join(texts)


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
