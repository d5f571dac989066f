"""The bundle: modules in the order in which they need each other, loaded without a trace."""

from __future__ import annotations

import json
import marshal
import os
import sys
from pathlib import Path

import pytest

from autobrrr.attach.bundle import bundle_loader, code_bundle
from autobrrr.attach.job_python import JobPython, job_python
from autobrrr.attach.ptrace import injector
from support.attach import probe_bundle
from support.machines.fake_proc import FakeProc

FOUND = dict.fromkeys(("agent", "agent.a", "agent.b", "remedies", "remedies.c"), (False, b""))


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("from . import b", ["agent", "agent.b"]),
        ("from .b import thing", ["agent", "agent.b"]),
        ("from ..remedies.c import X", ["agent", "remedies.c"]),
        ("from ..remedies import c", ["agent", "remedies", "remedies.c"]),
        ("import os\nfrom json import dumps", ["agent"]),
        ("def late():\n    from . import b", ["agent"]),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import b", ["agent"]),
        ("from . import (\n    b,\n)", ["agent", "agent.b"]),
    ],
)
def test_what_a_module_needs_when_it_is_imported(text: str, needed: list[str]) -> None:
    assert code_bundle.imported("agent.a", False, text, FOUND) == needed


def test_every_module_stands_after_those_that_it_needs() -> None:
    made = code_bundle.entries()
    assert made[0][0] == "loader"
    names = [name for name, _, _ in made[1:]]
    known = {name: (is_package, body) for name, is_package, body in made[1:]}
    for place, (name, is_package, body) in enumerate(made[1:]):
        for needed in code_bundle.imported(name, is_package, body.decode(), known):
            assert names.index(needed) < place


def load(entries: tuple[code_bundle.Entry, ...], kind: str) -> object:
    return bundle_loader.load("_autobrrr_test", kind, entries[1:], pause=lambda seconds: None)


@pytest.mark.parametrize("program", ["/bin/false", "/nowhere/python3", "/bin/cat"])
def test_a_python_that_can_not_compile_means_source(program: str) -> None:
    assert code_bundle.compiled_by(JobPython(program=program, name=program), b"x") is None


@pytest.mark.parametrize("kind", ["source", "code", "compiled beside the job"])
def test_the_agent_is_loaded_and_has_no_name_left(kind: str, tmp_path: Path) -> None:
    entries = probe_bundle(tmp_path / "probe")
    if kind == "code":
        entries = marshal.loads(bundle_loader.compiled(entries)[4:])
    elif kind == "compiled beside the job":
        python = JobPython(program=sys.executable, name=sys.executable)
        made = code_bundle.compiled_by(python, code_bundle.source(entries))
        entries, kind = marshal.loads(made[4:]), "code"
    start = load(entries, kind)
    assert callable(start)
    assert not [name for name in sys.modules if "_autobrrr" in name]


def test_what_keeps_the_agent_from_coming_up_reaches_who_injected_it(tmp_path: Path) -> None:
    boot = {"token": "t", "method": "preload"}
    (tmp_path / "boot.json").write_text(json.dumps(boot))
    entries = probe_bundle(tmp_path / "probe", main="raise OSError('no luck')")
    with pytest.raises(OSError, match="no luck"):
        bundle_loader.enter(str(tmp_path), "source", entries[1:])
    assert not [name for name in sys.modules if name.startswith("_autobrrr_t")]


WALLS = ("mnt", "user", "pid", "net", "ipc", "uts", "cgroup", "time")


def kept_in(proc: FakeProc, number: int, root: Path, **changes: str) -> None:
    """A process behind walls: namespaces, a root, a filter of system calls."""
    given = {
        "Seccomp": "0",
        "CapBnd": "1ff",
        "NoNewPrivs": "0",
        "label": "free",
        **{kind: f"{kind}:[1]" for kind in WALLS},
        **changes,
    }
    folder = proc.add(
        number,
        Seccomp=given["Seccomp"],
        CapBnd=given["CapBnd"],
        NoNewPrivs=given["NoNewPrivs"],
        environ={"PYTHONHOME": "/theirs"},
    )
    (folder / "attr").mkdir()
    (folder / "attr" / "current").write_text(given["label"])
    for kind in WALLS:
        (folder / "ns" / kind).symlink_to(given[kind])
    root.mkdir(exist_ok=True)
    (folder / "root").symlink_to(root)
    (folder / "exe").symlink_to("/theirs/python")


@pytest.mark.parametrize(
    "walls",
    [{kind: f"{kind}:[2]"} for kind in WALLS]
    + [{"Seccomp": "2"}, {"CapBnd": "a0"}, {"NoNewPrivs": "1"}, {"label": "kept"}, {"chroot": "yes"}],
)
def test_what_a_confined_job_chose_is_never_run_outside(walls: dict[str, str], tmp_path: Path) -> None:
    """Whoever is root in a container without a user namespace would be root of the machine by it."""
    proc = FakeProc(tmp_path / "proc")
    kept_in(proc, os.getpid(), tmp_path / "root")
    kept_in(proc, 7, tmp_path / ("jail" if walls.pop("chroot", "") else "root"), **walls)
    assert job_python(7, proc.root) is None


def test_a_job_that_is_kept_in_as_we_are_has_its_own_interpreter_run(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path / "proc")
    for pid in (os.getpid(), 7):
        kept_in(proc, pid, tmp_path / "root")
    theirs = JobPython(
        program=str(proc.root / "7" / "exe"), name="/theirs/python", variables=(("PYTHONHOME", "/theirs"),)
    )
    assert job_python(7, proc.root) == theirs
    for program in ("/theirs/trainer", "/theirs/python_train"):  # Python is within: it would train once more
        (proc.root / "7" / "exe").unlink()
        (proc.root / "7" / "exe").symlink_to(program)
        assert job_python(7, proc.root) is None


@pytest.mark.parametrize("folder", [None, '/tmp/it\'s "here"'])
def test_the_injected_string_compiles_without_a_warning(
    folder: str | None, recwarn: pytest.WarningsRecorder
) -> None:
    code = injector.compose("x = '''\\n\\'''' + \"\\\"\"", folder)
    compile(code, "injected", "exec")
    assert not recwarn.list
