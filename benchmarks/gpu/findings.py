"""Figures on disk, written after each of them: a run that is cut off goes on where it stood.

One JSON file a shard: the machine, the revision of the product, and by name what was found. What failed is
kept with its error and tried again; a figure of another revision or machine is dropped.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.planted import results

Measure = Callable[[], object]


class Findings:
    """The figures of one shard.

    Args:
        path: Its file.
        within_s: No further figure is begun after so long.
    """

    def __init__(self, path: Path, within_s: float) -> None:
        self._path, self._until = path, time.monotonic() + within_s
        about = {**results.machine(), "revision": results.revision()}
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        same = kept.get("about") == about
        self._held: dict[str, object] = {"about": about, "found": kept["found"] if same else {}}

    @property
    def found(self) -> dict[str, dict[str, object]]:
        return self._held["found"]  # type: ignore[return-value]

    def measure(self, all_of_them: Mapping[str, Measure]) -> int:
        """Measure what is not there; returns how many were left for want of time."""
        left = 0
        for name, measure in all_of_them.items():
            if "is" in self.found.get(name, {}):
                continue
            if time.monotonic() > self._until:
                left += 1
                continue
            began = time.monotonic()
            try:
                row: dict[str, object] = {"is": measure()}
            except Exception as error:  # noqa: BLE001 - one figure less
                row = {"failed": f"{type(error).__name__}: {error}", "where": traceback.format_exc()[-600:]}
            self.found[name] = {**row, "took_s": round(time.monotonic() - began, 2)}
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(self._held, indent=1, default=str), encoding="utf-8")
            print(f"{name}: {json.dumps(row, default=str)[:400]}", flush=True)
        return left
