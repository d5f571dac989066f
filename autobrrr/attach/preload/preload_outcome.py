"""What preloaded agents report to `run`: one file of JSON lines for each process that armed itself.

Lines are {"remedy", "status", "why"} while the plan is applied, and {"steps", "step_ns"} at the end. All
processes are heard: a remedy counts once, and again where another process says otherwise. Step times are
those of the command's own process, else of the first local rank that trained.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from autobrrr.folders import open_plain
from autobrrr.machine.kernel_text import number
from autobrrr.readable import fields, spoken

MOST_BYTES = 1 << 20  # of one look at one file
Line = dict[str, object]


class PreloadOutcome:
    """Reads the files of one run as they grow.

    Args:
        folder: The run's private folder.
        pid: The command's process.
        planned: Names of the remedies that are to be applied.
    """

    def __init__(self, folder: Path, pid: int, planned: Iterable[str] = ()) -> None:
        self._folder, self._pid = folder, pid
        self._planned = tuple(planned)
        self._read_bytes: dict[Path, int] = {}
        self._heard: set[tuple[object, ...]] = set()
        self._times: dict[Path, dict[str, object]] = {}
        self._on: set[tuple[Path, object]] = set()
        self.remedies: list[Line] = []
        self.lost: str | None = None  # a remedy that was on in a process, and went off there, and why

    @property
    def step_ns(self) -> dict[str, object] | None:
        """How long the steps of the run took."""
        first = min(self._times, key=self._rank_of, default=None)
        return None if first is None else self._times[first]

    def news(self) -> list[Line]:
        """Remedies reported since the last call; an unfinished line waits for the next."""
        fresh: list[Line] = []
        for file in sorted(self._folder.glob("outcome-*"), key=self._rank_of):
            for line in self._lines(file):
                if "remedy" in line:
                    self._follow(file, line)
                    said = (line["remedy"], line["status"], line.get("class"))
                    if said not in self._heard:
                        self._heard.add(said)
                        fresh.append(line)
                elif isinstance(times := line.get("step_ns"), dict):
                    self._times[file] = times
        self.remedies += fresh
        return fresh

    def missed(self) -> list[Line]:
        """Planned remedies of which no process has said a word; to be asked when the command has ended."""
        said = {line["remedy"] for line in self.remedies}
        why = "it never got its chance: " + (
            "the processes that came up were none of its script"
            if self._read_bytes or any(self._folder.glob("outcome-*"))
            else "before the command ended no process of it said that it trains with torch"
        )
        fresh: list[Line] = [
            {"remedy": name, "status": "refused", "why": why} for name in self._planned if name not in said
        ]
        self.remedies += fresh
        return fresh

    def _follow(self, file: Path, line: Line) -> None:
        remedy = line["remedy"]
        if line["status"] == "applied":
            self._on.add((file, remedy))
        elif (file, remedy) in self._on:
            self.lost = f"{remedy} went off by itself: {line.get('why')}"

    def _lines(self, file: Path) -> list[Line]:
        try:
            with open(open_plain(file), "rb") as opened:
                opened.seek(self._read_bytes.get(file, 0))
                data = opened.read(MOST_BYTES)
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._read_bytes[file] = self._read_bytes.get(file, 0) + len(whole)
        found = []
        for text in whole.split(b"\n"):
            try:
                line = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict):
                found.append(fields(line, spoken))
        return found

    def _rank_of(self, file: Path) -> tuple[bool, int, str]:
        """Files are named outcome-LOCAL_RANK-PID; the command's own comes first."""
        parts = file.name.split("-")
        rank = number(parts[1]) if len(parts) > 1 else None
        return not file.name.endswith(f"-{self._pid}"), rank or 0, file.name
