"""The latest session logs of this user as a table. In: the state folder. Out: text, the newest first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autobrrr.errors import UsageError
from autobrrr.records.gain_words import factor_words
from autobrrr.report.page_model import PageTable, cells
from autobrrr.report.page_text import table_text
from autobrrr.report.past_session import PastSession, past_session

MOST = 15  # each is read whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSession:
    """One log; `found` is None where it can't be read."""

    name: str
    found: PastSession | None


def latest_sessions(state: Path) -> list[ListedSession]:
    """The newest logs below the state folder, the newest first."""
    folder = state / "sessions"
    logs = sorted(folder.glob("*.jsonl"), reverse=True)[:MOST] if folder.is_dir() else []
    return [ListedSession(name=log.stem, found=_read(log)) for log in logs]


def sessions_table(sessions: list[ListedSession], width: int | None = None) -> str:
    """A line for each session."""
    if not sessions:
        return "no session yet; autobrrr report demo shows a recorded one"
    rows = [cells(each.name, *_cells(each.found)) for each in sessions]
    heads = ("SESSION", "SCRIPT", "REGIME", "SPEED-UP", "ENDED")
    return table_text(PageTable(title="", heads=heads, rows=rows), width)


def _cells(found: PastSession | None) -> tuple[str, str, str, str]:
    if found is None:
        return "-", "-", "-", "can't be read"
    script = "?" if found.data.snapshot.job is None else Path(found.data.snapshot.job.script).name
    regime = f"{found.data.snapshot.regime} ({found.data.snapshot.confidence})"
    tuned = found.data.tuned
    gain = "-" if tuned is None or tuned.interval is None or not tuned.kept else factor_words(tuned.speedup)
    return script, regime, gain, found.data.ended or "still running, or killed"


def _read(log: Path) -> PastSession | None:
    try:
        return past_session(log)
    except UsageError:
        return None
