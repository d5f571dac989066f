"""No module of ours is looked for in the folder that we stand in: it may be somebody else's."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from autobrrr import own_modules
from support.training import ran

PACKAGE = own_modules.ROOT / "autobrrr"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before Python 3.11 -m always looks there")
def test_a_module_in_the_working_folder_does_not_run_in_the_place_of_ours(tmp_path: Path) -> None:
    (tmp_path / "autobrrr.py").write_text("print('theirs')")
    (tmp_path / "msgspec.py").write_text("print('theirs')")
    done = ran(own_modules.command("autobrrr", "--version"), env=own_modules.environment(), cwd=tmp_path)
    assert done.stdout.startswith("autobrrr "), done.stderr
    assert "theirs" not in done.stdout


def test_the_package_is_found_from_any_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ":here")
    assert own_modules.environment()["PYTHONPATH"] == f"{own_modules.ROOT}:{Path('here').absolute()}"


def test_nobody_else_starts_modules_of_ours_by_name() -> None:
    starting = {
        str(file.relative_to(PACKAGE))
        for file in sorted(PACKAGE.rglob("*.py"))
        if '"-m"' in (text := file.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.List, ast.Tuple)) and any(map(is_ours, node.elts, node.elts[1:]))
    }
    assert not starting


def is_ours(flag: ast.expr, module: ast.expr) -> bool:
    words = [each.value for each in (flag, module) if isinstance(each, ast.Constant)]
    return len(words) == 2 and words[0] == "-m" and str(words[1]).startswith("autobrrr")
