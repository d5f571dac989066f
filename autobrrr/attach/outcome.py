"""What preloaded agents report to `run`: one file of JSON lines for each process that armed itself.

Lines are {"remedy", "status", "why"} while the plan is applied, and {"steps", "step_ns"} at the
end. The command's own process counts; under a launcher the first local rank does.
"""

from __future__ import annotations

import json
from pathlib import Path


class Outcome:
    """Reads the files of one run as they grow.

    Args:
        folder: The run's private folder.
        pid: The command's process.
    """

    def __init__(self, folder: Path, pid: int) -> None:
        self._folder, self._pid = folder, pid
        self._file: Path | None = None
        self._read_bytes = 0
        self.remedies: list[dict[str, object]] = []
        self.step_ns: dict[str, object] | None = None

    def news(self) -> list[dict[str, object]]:
        """Remedies reported since the last call; an unfinished line waits for the next."""
        if self._file is None:
            self._file = self._choose()
        if self._file is None:
            return []
        try:
            with self._file.open("rb") as file:
                file.seek(self._read_bytes)
                data = file.read()
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        fresh = []
        for text in whole.splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if not isinstance(line, dict):
                continue
            if "remedy" in line and "status" in line:
                fresh.append(line)
            elif isinstance(line.get("step_ns"), dict):
                self.step_ns = line["step_ns"]
        self.remedies += fresh
        return fresh

    def _choose(self) -> Path | None:
        """Files are named outcome-LOCAL_RANK-PID."""
        found = sorted(self._folder.glob("outcome-*"))
        own = [file for file in found if file.name.endswith(f"-{self._pid}")]
        first = [file for file in found if file.name.startswith("outcome-0-")]
        return next(iter(own or first), None)
