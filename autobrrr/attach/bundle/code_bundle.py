"""What is shipped into the target: the agent's modules, as code objects and as source.

Code objects are made out of process, and cached: by our own interpreter where it is of the target's version,
else by the target's. The loader takes them only where the magic number is the target's own, else it compiles
the source on its thread.
"""

from __future__ import annotations

import contextlib
import graphlib
import hashlib
import marshal
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path

from autobrrr import paths
from autobrrr.folders import open_plain
from autobrrr.machine import own_place, process_maps, procfs

PACKAGE = Path(__file__).resolve().parents[2]
LOADER = Path(__file__).resolve().with_name("bundle_loader.py")
ROOM = "agent"
REMEDIES = f"{ROOM}.remedies."
COMPILE_TIMEOUT_S, ENDS_S = 8.0, 1.0
MOST_CODE_BYTES = 32 << 20
_DIGEST_BYTES = 32  # in front of the code in the cache: its SHA-256
MARSHAL_VERSION = 2  # read alike by all Pythons since 3.4

# How files are called: the frames of importlib's bootstrap are those that `warnings` and `logging` pass over
# where they look for the caller, and ours stand between the job's code and torch's.
TRACED = "<autobrrr importlib._bootstrap "
# Functions of these files dynamo, meeting one in what a job compiles, leaves out and calls as they are. It
# finds that by the beginning of the name; tracing one it would import a module that has none.
NOT_TRACED = "<frozen importlib._bootstrap autobrrr "

# Run by the target's interpreter with `-I -S`; standard input and output are marshalled tuples.
_COMPILER = f"""
import marshal, sys, _frozen_importlib_external as external
made = []
for name, is_package, body in marshal.loads(sys.stdin.buffer.read()):
    start = {TRACED!r} if name.startswith({REMEDIES!r}) else {NOT_TRACED!r}
    code = compile(body, start + name + ">", "exec", dont_inherit=True)
    made.append((name, is_package, marshal.dumps(code)))
sys.stdout.buffer.write(external.MAGIC_NUMBER + marshal.dumps(tuple(made), 2))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilingPython:
    """A Python program to compile with.

    `program` is what is executed, `name` what it is told it is called (it finds its library by that).
    """

    program: str
    name: str
    variables: tuple[tuple[str, str], ...] = ()


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


def code(made: tuple[Entry, ...], interpreter: CompilingPython | None, cache: Path) -> bytes | None:
    """The file `code` of a bundle: from the cache, else compiled; None where that is not possible."""
    if interpreter is None:
        return None
    found = kept(made, interpreter, cache)
    if found is not None:
        return found
    compiled, place = compile_with(interpreter, source(made)), _place(made, interpreter, cache)
    if compiled is not None and place is not None:
        with contextlib.suppress(OSError):
            _keep(place, compiled)
    return compiled


def kept(made: tuple[Entry, ...], interpreter: CompilingPython, cache: Path) -> bytes | None:
    """The file `code` as the cache has it; None where it has not.

    None where it is damaged, too: that could end the process that loads it.
    """
    place = _place(made, interpreter, cache)
    if place is None:
        return None
    try:
        with open(open_plain(place), "rb") as file:
            digest, data = file.read(_DIGEST_BYTES), file.read(MOST_CODE_BYTES)
    except OSError:
        return None
    return data if digest == hashlib.sha256(data).digest() else None


def _place(made: tuple[Entry, ...], interpreter: CompilingPython, cache: Path) -> Path | None:
    """Where in the cache: by the program's file, how it is run, and what is compiled."""
    try:
        found = os.stat(interpreter.program)
    except OSError:
        return None
    file = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
    how = (interpreter.name, interpreter.variables, _COMPILER)
    key = hashlib.sha256(repr((file, how)).encode() + source(made)).hexdigest()[:32]
    return cache / "bundles" / key


def run_bounded(
    words: list[str],
    *,
    input: bytes,
    timeout: float,
    began: Callable[[subprocess.Popen[bytes]], None] = lambda process: None,
    **options: object,
) -> subprocess.CompletedProcess[bytes]:
    """Like `subprocess.run`, for a program that may be hostile: it gets no terminal of ours, little time, and
    is heard to so many bytes and no further. What it has started ends with it.

    Raises:
        OSError, SubprocessError: it can't be run, took too long, or said too much.
    """
    folder = paths.temporary_dir()
    with tempfile.TemporaryFile(dir=folder) as given, tempfile.TemporaryFile(dir=folder) as answer:
        given.write(input)
        given.seek(0)
        process = subprocess.Popen(  # type: ignore[call-overload]
            words, stdin=given, stdout=answer, stderr=subprocess.DEVNULL, start_new_session=True, **options
        )
        began(process)
        try:
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (MOST_CODE_BYTES, MOST_CODE_BYTES))
            process.wait(timeout)
        finally:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # a file system that never answers keeps it
                process.wait(ENDS_S)
        answer.seek(0)
        said = answer.read(MOST_CODE_BYTES)
    if len(said) == MOST_CODE_BYTES:
        raise subprocess.SubprocessError(f"{words[0]} says more than {MOST_CODE_BYTES} bytes")
    return subprocess.CompletedProcess(words, process.returncode, said, b"")


def compile_with(
    interpreter: CompilingPython,
    body: bytes,
    run: Callable[..., subprocess.CompletedProcess[bytes]] = run_bounded,
) -> bytes | None:
    """Have an interpreter compile the entries; None where it can't be run or fails."""
    variables = dict(interpreter.variables)
    # Isolated mode ignores PYTHONHOME; where the target needs it, it is all that it gets.
    flags = ["-s", "-S", "-B"] if "PYTHONHOME" in variables else ["-I", "-S", "-B"]
    try:
        done = run(
            [interpreter.name, *flags, "-c", _COMPILER],
            executable=interpreter.program,
            input=body,
            timeout=COMPILE_TIMEOUT_S,
            env=variables,
            cwd="/",
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 and len(done.stdout) > 4 else None


def interpreter_of(
    pid: int, version: tuple[int, int] | None, proc: Path = procfs.PROC
) -> CompilingPython | None:
    """What compiles for a process: our own Python where it is of its version, else the process's.

    Its own is found through its link, so it is right even if it was deleted. Whoever runs the job chose that
    program and its libraries: it is run only where the job is kept in no closer than we are. None where
    none may be run.
    """
    if version == sys.version_info[:2] and sys.executable:
        return CompilingPython(program=sys.executable, name=sys.executable)
    if not own_place.has_our_walls(pid, proc):
        return None
    link = proc / str(pid) / "exe"
    try:
        name = os.readlink(link).removesuffix(process_maps.DELETED)
    except OSError:
        return None
    if not procfs.is_python(name):  # it has Python within: run anew, it would do its own work once more
        return None
    environment = procfs.environ(pid, ("LD_LIBRARY_PATH", "PYTHONHOME"), proc)
    return CompilingPython(
        program=str(link),
        name=name,
        variables=tuple(sorted((key, value.raw) for key, value in environment.items())),
    )


def _keep(path: Path, data: bytes) -> None:
    paths.make_closed(path.parent)
    fd, unfinished = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(hashlib.sha256(data).digest() + data)
        os.replace(unfinished, path)
    except OSError:
        os.unlink(unfinished)
        raise
