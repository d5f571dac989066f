"""What is installed only with an extra: the verbs that need it say so, with the command that adds it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autobrrr import cli
from autobrrr.errors import install_line
from autobrrr.roofline import roofline_measure

ROOT = Path(__file__).resolve().parents[2]
CORE = ("torch",)  # what the core does without


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


@pytest.mark.integration
def test_the_core_runs_where_no_extra_is_installed(tmp_path: Path) -> None:
    """What attach, diagnose, tune, the screen and recipes load, with torch forbidden."""
    code = f"""
import sys
for name in {CORE!r}:
    sys.modules[name] = None
import importlib
for name in ("sidecar.daemon", "sidecar.tuning.tuning_thread", "tuner.live_search", "tuner.tuning_study",
             "relaunch.search.point_search", "client.diagnosing", "recipe", "report.pages.session_page",
             "trace.trace_analysis", "cli.verbs.recipe", "cli.verbs.attach", "cli.verbs.tune",
             "cli.verbs.run", "cli.verbs.top"):
    importlib.import_module("autobrrr." + name)
import autobrrr_tui.app
from autobrrr.cli import main
for words in (["recipe", "ls"], ["recipe", "schema"], ["explain"], ["report", "demo"], ["ls"]):
    assert main(words) == 0, words
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
