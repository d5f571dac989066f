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
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType

from autobrrr.attach.job_python import JobPython, run_bounded

PACKAGE = Path(__file__).resolve().parents[2]
LOADER = Path(__file__).resolve().with_name("bundle_loader.py")
ROOM = "agent"
REMEDIES = f"{ROOM}.remedies."
MARSHAL_VERSION = 2  # read alike by all Pythons since 3.4

# How files are called: the frames of importlib's bootstrap are those that `warnings` and `logging` pass over
# where they look for the caller, and ours stand between the job's code and torch's.
TRACED = "<autobrrr importlib._bootstrap "
# Functions of these files dynamo, meeting one in what a job compiles, leaves out and calls as they are. It
# finds that by the beginning of the name; tracing one it would import a module that has none.
NOT_TRACED = "<frozen importlib._bootstrap autobrrr "

COMPILE_TIMEOUT_S = 8.0
# Run by a job's Python; standard input and output are marshalled tuples.
_COMPILER = f"""
import marshal, sys, _frozen_importlib_external as external
made = []
for name, is_package, body in marshal.loads(sys.stdin.buffer.read()):
    start = {TRACED!r} if name.startswith({REMEDIES!r}) else {NOT_TRACED!r}
    code = compile(body, start + name + ">", "exec", dont_inherit=True)
    made.append((name, is_package, marshal.dumps(code)))
sys.stdout.buffer.write(external.MAGIC_NUMBER + marshal.dumps(tuple(made), {MARSHAL_VERSION}))
"""

# Runs first on the agent's thread; short, since it is compiled there. `mapped` may be given.
STUB = """
def first(folder, mapped, extra):
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
        space["enter"](folder, kind, entries[1:], mapped, extra)
    finally:
        space.clear()
"""

Entry = tuple[str, bool, bytes]

# Of one that runs with the module: what stands in a function, or under TYPE_CHECKING, is indented.
_IMPORT = re.compile(r"^from (\.+)([\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


def stub(folder: str) -> str:
    """The source to inject: loads the bundle in `folder` (the target's view) and starts the agent."""
    call = f'first({folder!r}, globals().get("mapped"), None)'
    return f"{STUB}try:\n    {call}\nfinally:\n    del first"


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


def code(made: tuple[Entry, ...]) -> bytes:
    """The file `code` of a bundle: by our own Python."""
    compiled = tuple(
        (name, is_package, marshal.dumps(_compiled(name, body))) for name, is_package, body in made
    )
    return MAGIC_NUMBER + marshal.dumps(compiled, MARSHAL_VERSION)


def _compiled(name: str, body: bytes) -> CodeType:
    start = TRACED if name.startswith(REMEDIES) else NOT_TRACED
    return compile(body, f"{start}{name}>", "exec", dont_inherit=True)


@functools.cache
def files(made: tuple[Entry, ...] | None = None) -> Mapping[str, bytes]:
    """What is shipped, by the names of the files; the agent unless other entries are given."""
    shipped = made or entries()
    return {"code": code(shipped), "source": source(shipped)}


def compiled_by(python: JobPython, body: bytes) -> bytes | None:
    """The file `code`, of the file `source`, by a job's Python; None where it can't be run or fails."""
    variables = dict(python.variables)
    # Isolated mode ignores PYTHONHOME; where the job needs it, it is all that it gets.
    flags = ["-s", "-S", "-B"] if "PYTHONHOME" in variables else ["-I", "-S", "-B"]
    words = [python.name, *flags, "-c", _COMPILER]
    try:
        done = run_bounded(
            words, input=body, timeout=COMPILE_TIMEOUT_S, executable=python.program, env=variables, cwd="/"
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 and len(done.stdout) > 4 else None
