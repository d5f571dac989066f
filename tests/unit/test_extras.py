"""What is installed only with an extra: the verbs that need it say so, with the command that adds it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from autobrrr import cli
from autobrrr.errors import install_line
from autobrrr.roofline import roofline_measure

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("words", "package"),
    [(["demo"], "torch"), (["roofline"], "torch"), (["attach", "1", "--web"], "textual-serve")],
)
def test_a_verb_whose_package_is_missing_says_how_to_install_it(
    words: list[str], package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(roofline_measure, "torch_version", lambda: None)
    assert cli.main(words) == 1
    said = capsys.readouterr()
    assert said.out == ""
    first, second = said.err.splitlines()
    assert first.startswith("autobrrr: error: ")
    assert f"needs {package}, which is not installed here" in first
    assert second == f"hint: {install_line(package)}"


@pytest.mark.parametrize(
    ("prefix", "line"),
    [
        ("/home/me/.venv", "/x/python -m pip install torch"),
        ("/home/me/.local/share/uv/tools/autobrrr", "uv pip install --python /x/python torch"),
        ("/home/me/.local/pipx/venvs/autobrrr", "pipx runpip autobrrr install torch"),
    ],
)
def test_the_line_fits_how_the_program_was_installed(prefix: str, line: str) -> None:
    assert install_line("torch", prefix, "/x/python") == line


def test_an_extra_brings_every_package_that_is_named() -> None:
    extras = (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1]
    told = {
        package
        for file in ROOT.glob("autobrrr/**/*.py")
        for package in re.findall(r"(?:NotInstalled|install_line)\(\"([^\"]+)", file.read_text())
    }
    assert {"torch", "textual-serve", "psycopg[binary]"} <= told
    assert all(f'"{package}>=' in extras for package in told)
