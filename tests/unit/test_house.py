"""The rules of the house that a script can hold; docstrings and taste are for readers."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((*ROOT.glob("autobrrr/**/*.py"), *ROOT.glob("tui/**/*.py")))
BESIDE = sorted((*ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("tests/**/*.py")))
TABLES = {
    "autobrrr/cli/verbs": "one file a verb",
    "benchmarks/planted/jobs": "one script a family of planted jobs, named in the tables of cases",
    "tests/support/jobs": "one script a job, started by its name beside the two modules that it imports",
}
PROSE = re.compile(
    r"\b(why|reason|note|message|sentence)\w*\.(endswith|startswith|split|remove(prefix|suffix))\("
)
PERCENT = re.compile(r":[<>^+]?\d*\.\d%\}|\}%[^ =]")  # a share that is not written as `quantities.share` does
CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)


def twice(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_a_folder_holds_no_more_than_sixteen_files() -> None:
    held = Counter(str(file.parent.relative_to(ROOT)) for file in (*FILES, *BESIDE))
    assert sorted(folder for folder, count in held.items() if count > 16) == sorted(TABLES)


def test_a_module_has_its_name_for_itself() -> None:
    assert twice([file.name for file in FILES if not file.name.startswith("__")]) == []


def test_a_public_class_has_its_name_for_itself() -> None:
    names = [name for file in FILES for name in CLASS.findall(file.read_text())]
    assert len(names) > 500
    assert twice(names) == []


def test_nothing_is_decided_by_a_sentence() -> None:
    decided = [file.name for file in FILES if PROSE.search(file.read_text())]
    assert decided == []


def test_a_share_is_written_in_one_way() -> None:
    assert PERCENT.search('f"{part:5.1%}"')
    assert [file.name for file in FILES if PERCENT.search(file.read_text())] == []


def test_every_fault_of_the_nightly_table_fits_the_code() -> None:
    """`tests/mutants.py` plants them: a line that has changed needs another fault, or none."""
    table = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text())
    planted = [
        (file, old) for group in table.values() for file, each in group["mutants"].items() for old, _ in each
    ]
    assert len(planted) > 60
    assert [(file, old) for file, old in planted if old not in (ROOT / file).read_text()] == []
    assert [
        one for group in table.values() for one in group["tests"] if not (ROOT / one.split("::")[0]).exists()
    ] == []


def test_text_that_a_user_gets_as_a_file_is_utf_8_in_every_locale() -> None:
    without = re.compile(r'(?<!lock"\))\.open\("[wx]"\)')
    assert without.search('target.open("w")')
    assert [file.name for file in FILES if without.search(file.read_text())] == []
