"""The wheel in empty environments of pip, uv and pipx: without torch, it enters a job that has its own.

The wheel and what it needs are fetched once, as pip is configured here; the three install from that folder.
"""

import json
import os
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from support.attach import eventually
from support.training import TrainingJob, environment, ran, sidecars

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
MOST_WHEEL_BYTES, MOST_INSTALLED_BYTES = 2_000_000, 110_000_000  # bytecode, which pip adds, is half as much
FETCH = ("pip", "wheel", "-q", "-c", str(ROOT / "constraints.txt"), str(ROOT), "-w")
FOR = f"--python {sys.executable}"
# Under an empty home: the environment, the folder of programs, and the commands that make them.
WAYS = {
    "venv": ("venv/bin", ["venv --without-pip venv", "pip --python venv/bin/python install -q autobrrr"]),
    ".local/share/uv/tools/autobrrr": (".local/bin", [f"uv tool install --no-index {FOR} autobrrr"]),
    ".local/share/pipx/venvs/autobrrr": (".local/bin", [f"pipx install {FOR} autobrrr"]),
}
# Beside uv it would take that; and for the pip that it keeps, it asks an index.
PIPX = {"PIPX_DEFAULT_BACKEND": "pip", "PIPX_DISABLE_SHARED_LIBS_AUTO_UPGRADE": "1"}
VERBS = ("--help", "--version", "ls", "recipe ls", "recipe schema", "explain", "report demo")
NO_TORCH = (
    "autobrrr.sidecar.tuning.tuning_thread, autobrrr.relaunch.search.point_search, autobrrr_tui.app, "
    "autobrrr.trace.trace_analysis, autobrrr.cli.verbs.tune, autobrrr.cli.verbs.run, autobrrr.cli.verbs.top"
)


def said(words: list[str], env: Mapping[str, str], home: Path) -> str:
    """What a command prints; it has to end well."""
    done = ran(words, env=env, cwd=home, timeout=200)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def test_the_wheel_works_from_pip_uv_and_pipx(job: Callable[..., TrainingJob], tmp_path: Path) -> None:
    wheels, python = str(tmp_path / "wheels"), (sys.executable, "-m")
    fetched = ran((*python, *FETCH, wheels))
    if "No matching distribution found for hatchling" in fetched.stderr:
        pytest.skip("pip reaches no package index")
    assert fetched.returncode == 0, fetched.stderr
    (wheel,) = Path(wheels).glob("autobrrr-*.whl")
    assert wheel.stat().st_size <= MOST_WHEEL_BYTES
    held = {file for file in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in file}
    assert {file.split("/")[0] for file in held} == {"autobrrr", "autobrrr_tui"}
    assert {f"autobrrr/_recipes/{file.name}" for file in ROOT.glob("recipes/*.toml")} <= held
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": wheels, "UV_FIND_LINKS": wheels, "PIP_COMPILE": "0"}
    shared = {name: environment(tmp_path)[name] for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "TMPDIR")}
    installed: list[tuple[str, Mapping[str, str], Path]] = []
    for number, (place, (programs, commands)) in enumerate(WAYS.items()):
        home = tmp_path / f"home-{number}"
        home.mkdir()
        env = {"PATH": os.defpath, "HOME": str(home)}
        for command in commands:
            said([*python, *command.split()], env | offline | PIPX, home)
        assert sum(file.lstat().st_size for file in (home / place).rglob("*")) <= MOST_INSTALLED_BYTES
        assert not list((home / place).glob("lib/*/site-packages/torch"))
        tool, env = str(home / programs / "autobrrr"), env | shared
        for words in VERBS if number == 0 else VERBS[:3]:
            said([tool, *words.split()], env, home)
        installed.append((tool, env, home))
    said(["venv/bin/python", "-c", f"import {NO_TORCH}"], installed[0][1], installed[0][2])
    training = job("plain")
    pid = str(training.pid)
    for tool, env, home in installed:
        said([tool, "attach", pid, "--for", "200ms", "--json", "--no-probe"], env, home)
        found = said([tool, "diagnose", pid, "--json", "--for", "3s"], env, home)
        assert json.loads(found)["step_ns"]["count"] > 0
        said([tool, "detach", pid], env, home)
        eventually(lambda: not sidecars(tmp_path))
    training.finish()
