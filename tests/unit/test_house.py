"""The rules of the house that a script can hold; docstrings and taste are for readers."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((*ROOT.glob("autobrrr/**/*.py"), *ROOT.glob("tui/**/*.py")))
TABLES = {"autobrrr/diagnosis/signals"}  # strategies, one file each
PROSE = re.compile(
    r"\b(why|reason|note|message|sentence)\w*\.(endswith|startswith|split|remove(prefix|suffix))\("
)
CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)


def twice(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_a_folder_holds_no_more_than_sixteen_files() -> None:
    held = Counter(str(file.parent.relative_to(ROOT)) for file in FILES)
    assert [folder for folder, count in held.items() if count > 16 and folder not in TABLES] == []


def test_a_module_has_its_name_for_itself() -> None:
    assert twice([file.name for file in FILES if not file.name.startswith("__")]) == []


def test_a_public_class_has_its_name_for_itself() -> None:
    names = [name for file in FILES for name in CLASS.findall(file.read_text())]
    assert len(names) > 500
    assert twice(names) == []


def test_nothing_is_decided_by_a_sentence() -> None:
    decided = [file.name for file in FILES if PROSE.search(file.read_text())]
    assert decided == []
