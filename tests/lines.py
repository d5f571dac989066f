"""The lines of each room against its budget, in `tests/lines.toml`.

In: the Python files of the checkout. Out: a table; exit status 1 if a room is above its budget. `--lower`
lowers each budget to the room's lines; it raises none.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests/lines.toml"


def counted(rooms: dict[str, dict[str, object]]) -> Counter[str]:
    """Lines per room; a file counts for the room with the longest path that holds it."""
    room_of = {path: name for name, room in rooms.items() for path in room["paths"]}  # type: ignore[attr-defined]
    found: Counter[str] = Counter()
    for top in sorted({path.split("/")[0] for path in room_of}):
        for file in (ROOT / top).rglob("*.py"):
            place = file.relative_to(ROOT)
            room = next((room_of[str(folder)] for folder in place.parents if str(folder) in room_of), None)
            if room is None:
                raise SystemExit(f"{place} is in no room of {TABLE.relative_to(ROOT)}")
            found[room] += len(file.read_text().splitlines())
    return found


def main(arguments: list[str]) -> int:
    text = TABLE.read_text()
    rooms = tomllib.loads(text)
    lines = counted(rooms)
    over = [name for name, room in rooms.items() if lines[name] > room["most"]]
    print(f"{'room':<12}{'lines':>8}{'most':>8}{'goal':>8}")
    for name, room in rooms.items():
        print(
            f"{name:<12}{lines[name]:>8}{room['most']:>8}{room['goal']:>8}{'  over' if name in over else ''}"
        )
        if "--lower" in arguments and lines[name] < room["most"]:
            text = re.sub(rf"(?ms)(^\[{name}\]$.*?^most = )\d+", rf"\g<1>{lines[name]}", text)
    source = sum(lines.values()) - lines["tests"] - lines["benchmarks"]
    print(f"{'source':<12}{source:>8}")
    if "--lower" in arguments:
        TABLE.write_text(text)
    for name in over:
        print(f"lines: {name} is {lines[name] - rooms[name]['most']} over its budget: cut there first")
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
