"""Loads the agent inside the target, on the agent's own thread. Shipped as the bundle's first entry.

In come the bundle's entries (code objects, or source) and the folder with `boot.json`; the agent's
modules are made under a private name, run, and taken out of `sys.modules` again: nothing of ours
can be found by name afterwards. When the agent ends, the job's own garbage collector frees them.
Standard library only, Python 3.10 and later.
"""

import ctypes
import json
import marshal
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType

Entry = tuple[str, bool, bytes]
# After so long with the GIL, between two modules, the training thread gets it back.
STINT_NS, BREATH_S = 1_000_000, 0.0002
TORCH_POLL_S, TORCH_POLLS = 0.02, 1500


def enter(
    folder: str,
    kind: str,
    entries: Sequence[Entry],
    mapped: tuple[int, int] | None,
    extra: dict[str, object] | None = None,
) -> None:
    """Load and start the agent; returns when it has ended. Raises what kept it from coming up.

    Args:
        folder: The private folder, as this process sees it.
        kind: "code" or "source": what the entries hold.
        entries: (module, whether it is a package, body), each after those that it imports.
        mapped: Address and size of the memory that the injection used.
        extra: More fields of the boot record.
    """
    try:
        with open(folder + "/boot.json", encoding="utf-8") as file:
            boot = json.load(file)
        if time.monotonic() > boot["deadline"]:
            raise TimeoutError("it fired too late")
        boot.update(bundle=kind, mapped=list(mapped) if mapped else None, **(extra or {}))
        if boot["method"] != "preload":
            _wait_for_torch()
        package = "_autobrrr_" + boot["token"]
        start = load(package, kind, entries)
    except BaseException:
        _unmap(mapped)
        raise
    start(boot)


def load(
    package: str,
    kind: str,
    entries: Sequence[Entry],
    pause: Callable[[float], object] = time.sleep,
) -> Callable[[dict[str, object]], None]:
    """Make and run all modules; returns `agent.entry.start`."""
    made: dict[str, ModuleType] = {}
    began_ns = time.perf_counter_ns()
    try:
        _make(package, True, made)
        for name, is_package, body in entries:
            module = _make(f"{package}.{name}", is_package, made)
            code = (
                marshal.loads(body)
                if kind == "code"
                else compile(body, _file(name), "exec", dont_inherit=True)
            )
            exec(code, module.__dict__)
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


def _file(name: str) -> str:
    """As in the bundle: dynamo and `warnings` know by it what they are to pass over."""
    traced = name.startswith("agent.remedies.")
    return f"<{'autobrrr importlib._bootstrap' if traced else 'frozen importlib._bootstrap autobrrr'} {name}>"


def _unmap(mapped: tuple[int, int] | None) -> None:
    if mapped is not None:
        ctypes.pythonapi["munmap"](ctypes.c_void_p(mapped[0]), ctypes.c_size_t(mapped[1]))
