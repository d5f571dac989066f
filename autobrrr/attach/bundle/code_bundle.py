"""What is shipped into the target: the agent's modules, as code objects and as source.

Our own Python compiles the code objects. If the job runs another version, the job's Python compiles them in a
process of its own. The loader takes them only if the magic number matches. Otherwise it compiles the source
on the agent's thread, which stops the job for a fifth of a second.
"""

from __future__ import annotations

import functools
import graphlib
import marshal
import re
import subprocess
from collections.abc import Container, Mapping
from pathlib import Path

from autobrrr.attach.bundle.bundle_loader import MARSHAL_VERSION, compiled
from autobrrr.attach.job_python import JobPython, run_bounded

PACKAGE = Path(__file__).resolve().parents[2]
LOADER = Path(__file__).resolve().with_name("bundle_loader.py")
ROOM = "agent"

COMPILE_TIMEOUT_S = 8.0
Entry = tuple[str, bool, bytes]
# Runs first on the agent's thread; short, since it is compiled there.
STUB = """
def first(folder, extra):
    import marshal, sys
    kind = "code"
    try:
        with open(folder + "/code", "rb") as file:
            data = file.read()
        if data[:4] != sys.modules["_frozen_importlib_external"].MAGIC_NUMBER:
            raise ValueError
        entries = marshal.loads(data[4:])
        loader = marshal.loads(entries[0][2])
    except Exception:
        kind = "source"
        with open(folder + "/source", "rb") as file:
            entries = marshal.loads(file.read())
        loader = compile(entries[0][2], "<autobrrr loader>", "exec", dont_inherit=True)
    space = {"__name__": "autobrrr loader"}
    exec(loader, space)
    try:
        space["enter"](folder, kind, entries[1:], extra)
    finally:
        space.clear()
"""

# Of one that runs with the module: what stands in a function, or under TYPE_CHECKING, is indented.
_IMPORT = re.compile(r"^from (\.+)([\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


def stub(folder: str) -> str:
    """The source to inject: loads the bundle in `folder` (the target's view) and starts the agent."""
    return f"{STUB}try:\n    first({folder!r}, None)\nfinally:\n    del first"


def entries(package: Path = PACKAGE) -> tuple[Entry, ...]:
    """Loader and modules as source, each after those that it imports."""
    found: dict[str, tuple[bool, bytes]] = {}
    for file in sorted((package / ROOM).rglob("*.py")):
        parts = file.relative_to(package).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        found[".".join(parts[:-1] if is_package else parts)] = (is_package, file.read_bytes())
    needs = {
        name: imported(name, is_package, body.decode(), found) for name, (is_package, body) in found.items()
    }
    ordered = graphlib.TopologicalSorter(needs).static_order()
    return (("loader", False, LOADER.read_bytes()), *((name, *found[name]) for name in ordered))


def imported(name: str, is_package: bool, text: str, known: Container[str]) -> list[str]:
    """Modules among `known` that a module needs when it runs: its package, its relative imports."""
    parts = name.split(".")
    needed = [".".join(parts[:depth]) for depth in range(1, len(parts))]
    for dots, module, names in _IMPORT.findall(text):
        above = parts[: len(parts) + is_package - len(dots)]
        source = ".".join([*above, *(module.split(".") if module else [])])
        needed += [source, *(f"{source}.{each}".lstrip(".") for each in re.findall(r"\w+", names))]
    return [each for each in dict.fromkeys(needed) if each in known and each != name]


def source(made: tuple[Entry, ...]) -> bytes:
    """The file `source` of a bundle."""
    return marshal.dumps(made, MARSHAL_VERSION)


@functools.cache
def files(made: tuple[Entry, ...] | None = None) -> Mapping[str, bytes]:
    """What is shipped, by the names of the files; the agent unless other entries are given."""
    shipped = made or entries()
    return {"code": compiled(shipped), "source": source(shipped)}


def compiled_by(python: JobPython, body: bytes) -> bytes | None:
    """The file `code`, of the file `source`, by a job's Python; None where it can't be run or fails."""
    variables = dict(python.variables)
    # Isolated mode ignores PYTHONHOME; where the job needs it, it is all that it gets.
    flags = ["-s", "-S", "-B"] if "PYTHONHOME" in variables else ["-I", "-S", "-B"]
    compiler = (
        f"{LOADER.read_text()}\nsys.stdout.buffer.write(compiled(marshal.loads(sys.stdin.buffer.read())))"
    )
    words = [python.name, *flags, "-c", compiler]
    try:
        done = run_bounded(
            words, input=body, timeout=COMPILE_TIMEOUT_S, executable=python.program, env=variables, cwd="/"
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 and len(done.stdout) > 4 else None
