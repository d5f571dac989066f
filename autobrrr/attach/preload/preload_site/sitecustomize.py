"""Arms a training process at its start: the agent comes up once torch has been imported.

Copied into the folder of one run, which is on PYTHONPATH of its command. Takes itself out of the way, runs
an existing sitecustomize, never imports torch, and stays inert in children, workers and launchers. Whatever
goes wrong here, the script does not notice.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

NOT_RANKS = {
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "torchrun",
    "accelerate",
    "deepspeed",
}
HELPERS = ("forkserver", "resource_tracker", "spawn")  # of multiprocessing, started as code after -c
OF_HELPERS = tuple(f"from multiprocessing.{each} import " for each in HELPERS)
READY_S = 20.0  # it takes some 0.05 s; more on a machine that is busy


class Watcher:
    """A finder that waits for the import of torch, lends it our loader, and is gone."""

    def __init__(self, boot: str) -> None:
        self._boot, self._pid = boot, os.getpid()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if os.getpid() != self._pid:  # a forked child: the agent is not for it
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = Announcing(spec.loader, spec, self._boot)  # type: ignore[assignment]
                return spec
        return None


class Announcing:
    """Stands in for torch's loader during its import, then puts the real one back."""

    def __init__(self, loader: Loader, spec: ModuleSpec, boot: str) -> None:
        self._loader, self._spec, self._boot = loader, spec, boot

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            # It has run: an import of it from the agent's thread must not wait for this one.
            self._spec._initializing = False  # type: ignore[attr-defined]
            begin(self._boot)
        except Exception:  # noqa: BLE001  the script goes on without an agent
            return

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)


def begin(boot: str) -> None:
    """Start the agent's thread; with a plan, give it a moment to be ready before the script goes on."""
    import _thread
    import json
    import time

    if {type(each) for each in (_thread.get_ident, time.sleep)} != {type(os.getpid)}:
        return  # gevent or eventlet has replaced them: there are no threads for an agent
    with open(boot + "/boot.json", encoding="utf-8") as file:
        record = json.load(file)
    with open(boot + "/stub", encoding="utf-8") as file:
        stub = file.read()
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        ticks = file.read().rpartition(")")[2].split()[19]
    ready = _thread.allocate_lock()
    ready.acquire()

    def is_ready() -> None:
        if ready.locked():
            ready.release()

    extra: dict[str, object] = {
        "listen": f"{record['runtime']}/agent-{os.getpid()}-{ticks}.sock",
        "outcome": f"{boot}/outcome-{os.environ.get('LOCAL_RANK', '0')}-{os.getpid()}",
        "ready": is_ready,
    }
    if record.get("audited"):  # a name for each process
        extra["audited"] = f"{record['audited']}-{os.environ.get('LOCAL_RANK', '0')}-{os.getpid()}"

    def work() -> None:
        import signal

        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
            space: dict[str, object] = {"__name__": "site"}
            exec(compile(stub, "<site stub>", "exec", dont_inherit=True), space)
            space["first"](boot, extra)  # type: ignore[operator]
        except BaseException:  # noqa: BLE001  the script goes on without an agent
            return
        finally:
            is_ready()

    _thread.start_new_thread(work, ())
    if record["plan"] or record.get("audited"):
        ready.acquire(True, READY_S)


def is_a_job(words: Sequence[str]) -> bool:
    """Whether a command line may be a training process: no child of multiprocessing, no launcher."""
    if "--multiprocessing-fork" in words or any(word.startswith(OF_HELPERS) for word in words[1:]):
        return False
    if any("_inductor/compile_worker" in word for word in words[1:4]):
        return False
    return not NOT_RANKS.intersection(word.rsplit("/", 1)[-1] for word in words[:4])


def step_aside() -> None:
    """Take our folder off the path, and wait for torch."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != folder]
    sys.path_importer_cache.pop(folder, None)
    try:
        if os.path.isfile(folder + "/boot.json") and is_a_job(sys.orig_argv):
            sys.meta_path.insert(0, Watcher(folder))
    except Exception:  # noqa: BLE001  the script goes on without an agent
        return


if __name__ == "sitecustomize":
    step_aside()
    ours = sys.modules.pop("sitecustomize")
    try:
        # The one that was there before us, now that our folder is off the path.
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours  # the import system insists on finding one
