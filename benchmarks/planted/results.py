"""Rows on disk: one JSON object a line, so that a run that was broken off goes on where it stood.

A row belongs to a revision: a digest over the sources of the product and of the planted jobs.
"""

import hashlib
import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from autobrrr.roofline.machine_identity import read_machine
from benchmarks import ROOT

RESULTS = ROOT / "benchmarks" / "results"
SOURCES = ("autobrrr", "benchmarks/planted")


def revision(root: Path = ROOT, sources: Iterable[str] = SOURCES) -> str:
    """A digest over the sources as they lie there, committed or not."""
    digest = hashlib.sha256()
    for folder in sources:
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def machine() -> dict[str, Any]:
    """What the rows were measured on."""
    import torch

    return {
        "cores": os.cpu_count(),
        "cpu": read_machine().name,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def read(path: Path | None, of: str | None = None) -> list[dict[str, Any]]:
    """All whole rows, of one revision where one is given; a torn last line is left out."""
    rows = []
    if path is not None and path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue
    return [row for row in rows if of is None or row["revision"] == of]


def append(path: Path | None, row: dict[str, Any]) -> None:
    """Add a row, where rows are kept; places on this machine are told from the project's root."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, default=str).replace(f"{ROOT}/", "") + "\n")


def latest(rows: Iterable[dict[str, Any]], of: str | None = None) -> list[dict[str, Any]]:
    """The newest row of each case and repeat; of one revision, where one is given."""
    newest: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        if of is None or row.get("revision") == of:
            newest[(row["case"], row.get("repeat", 0))] = row
    return list(newest.values())
