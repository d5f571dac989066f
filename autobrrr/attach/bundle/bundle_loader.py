"""Loads the agent inside the target, on the agent's own thread. Shipped as the bundle's first entry. And
compiles a bundle, beside the target.

In come the bundle's entries (code objects, or source) and the folder with `boot.json`; the agent's
modules are made under a private name, run, and taken out of `sys.modules` again: nothing of ours
can be found by name afterwards. When the agent ends, the job's own garbage collector frees them.
Standard library only, Python 3.10 and later.
"""

import json
import marshal
import sys
import time
from collections.abc import Callable, Sequence
from types import CodeType, ModuleType

Entry = tuple[str, bool, bytes]
# After so long with the GIL, between two modules, the training thread gets it back.
STINT_NS, BREATH_S = 1_000_000, 0.0002
TORCH_POLL_S, TORCH_POLLS = 0.02, 1500
MARSHAL_VERSION = 2  # read alike by all Pythons since 3.4
REMEDIES = "agent.remedies."
# How files are called: the frames of importlib's bootstrap are those that `warnings` and `logging` pass over
# where they look for the caller, and ours stand between the job's code and torch's.
TRACED = "<autobrrr importlib._bootstrap "
# Functions of these files dynamo, meeting one in what a job compiles, leaves out and calls as they are. It
# finds that by the beginning of the name; tracing one it would import a module that has none.
NOT_TRACED = "<frozen importlib._bootstrap autobrrr "


def enter(folder: str, kind: str, entries: Sequence[Entry], extra: dict[str, object] | None = None) -> None:
    """Load and start the agent; returns when it has ended. Raises what kept it from coming up.

    Args:
        folder: The private folder, as this process sees it.
        kind: "code" or "source": what the entries hold.
        entries: (module, whether it is a package, body), each after those that it imports.
        extra: More fields of the boot record.
    """
    with open(folder + "/boot.json", encoding="utf-8") as file:
        boot = json.load(file)
    boot.update(bundle=kind, **(extra or {}))
    if boot["method"] != "preload":
        _wait_for_torch()
    load("_autobrrr_" + boot["token"], kind, entries)(boot)


def load(
    package: str, kind: str, entries: Sequence[Entry], pause: Callable[[float], object] = time.sleep
) -> Callable[[dict[str, object]], None]:
    """Make and run all modules; returns `agent.entry.start`."""
    made: dict[str, ModuleType] = {}
    began_ns = time.perf_counter_ns()
    try:
        _make(package, True, made)
        for name, is_package, body in entries:
            module = _make(f"{package}.{name}", is_package, made)
            exec(marshal.loads(body) if kind == "code" else _code(name, body), module.__dict__)
            if time.perf_counter_ns() - began_ns >= STINT_NS:
                pause(BREATH_S)
                began_ns = time.perf_counter_ns()
        start: Callable[[dict[str, object]], None] = made[f"{package}.agent.entry"].start
        return start
    finally:
        for name in made:
            sys.modules.pop(name, None)


def _make(full: str, is_package: bool, made: dict[str, ModuleType]) -> ModuleType:
    parent, _, last = full.rpartition(".")
    module = ModuleType(full)
    module.__package__ = full if is_package else parent
    if is_package:
        module.__path__ = []
    made[full] = sys.modules[full] = module
    if parent in made:
        setattr(made[parent], last, module)
    return module


def _wait_for_torch() -> None:
    """Wait out an import of torch that is under way in another thread."""
    for _ in range(TORCH_POLLS):
        torch = sys.modules.get("torch")
        if torch is None:
            raise ImportError("torch is not imported in the main interpreter of this process")
        if not getattr(getattr(torch, "__spec__", None), "_initializing", False):
            return
        time.sleep(TORCH_POLL_S)


def compiled(entries: Sequence[Entry]) -> bytes:
    """The file `code` of a bundle, of the entries of its file `source`, for the Python that runs this."""
    made = tuple((name, is_package, marshal.dumps(_code(name, body))) for name, is_package, body in entries)
    magic: bytes = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
    return magic + marshal.dumps(made, MARSHAL_VERSION)


def _code(name: str, body: bytes) -> CodeType:
    file = (TRACED if name.startswith(REMEDIES) else NOT_TRACED) + name + ">"
    return compile(body, file, "exec", dont_inherit=True)
