"""The rules of the house that a script can hold; docstrings and taste are for readers."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((*ROOT.glob("autobrrr/**/*.py"), *ROOT.glob("tui/**/*.py")))
TABLES = {"autobrrr/diagnosis/signals"}  # strategies, one file each
PROSE = re.compile(
    r"\b(why|reason|note|message|sentence)\w*\.(endswith|startswith|split|remove(prefix|suffix))\("
)


def twice(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_a_folder_holds_no_more_than_sixteen_files() -> None:
    held = Counter(str(file.parent.relative_to(ROOT)) for file in FILES)
    assert [folder for folder, count in held.items() if count > 16 and folder not in TABLES] == []


def test_a_module_has_its_name_for_itself() -> None:
    assert twice([file.name for file in FILES if not file.name.startswith("__")]) == []


def test_a_public_class_has_its_name_for_itself() -> None:
    found = [each for file in FILES for each in ast.parse(file.read_text()).body]
    names = [each.name for each in found if isinstance(each, ast.ClassDef)]
    assert twice([name for name in names if not name.startswith("_")]) == []


def test_nothing_is_decided_by_a_sentence() -> None:
    decided = [file.name for file in FILES if PROSE.search(file.read_text())]
    assert decided == []
