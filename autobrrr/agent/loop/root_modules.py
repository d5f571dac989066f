"""Finds the modules that the training loop calls itself, with a global hook that lives for a step.

In: every module call of one step. Out: `Job.saw_root` for those that no other module called. A
call is a root if no frame of `Module._call_impl` lies below it on the stack, and none that loads a
batch: the transforms of a dataset are no model. dynamo traces global hooks into what it compiles: the
search ends where `torch.compile` is called, and under dynamo's eyes its hook is a plain function that
returns at once.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable
from types import CodeType, FrameType

from ..live_torch.job_signals import Ours
from ..live_torch.live_job import Job
from ..live_torch.patches import Patch, first, patched, take_off_all

TRIES = 6  # steps without a root call until the search ends
SEARCHES = 3  # the loop may come to call other modules
# The file names of the other functions tell dynamo to leave them out.
TRACED = "<autobrrr importlib._bootstrap agent.loop.root_modules>"
# Callers of modules that are no forward: activation checkpointing inside backward, a DataLoader's batch.
OF_OTHERS = ("_engine_run_backward", "_next_data")
AnyCall = Callable[..., object]


class RootSearch:
    """On from one boundary to the next, or until something is compiled."""

    def __init__(
        self,
        job: Job,
        owner: int,
        fail: Callable[[BaseException], None],
        most_calls: int | None = None,
    ) -> None:
        self._job = job
        self._owner = owner
        self._ours = Ours(Exception, told=fail)
        self._hooks: dict[object, object] | None = None
        self._key = object()
        self._codes: tuple[CodeType, ...] = ()
        self._compile: list[Patch] = []
        self._most_calls = most_calls
        self._calls = 0
        self.left = TRIES
        self.found = False  # a root that was not known
        self.scripted = False
        self.compiles = False  # `torch.compile` was called meanwhile

    @property
    def on(self) -> bool:
        """The global hook is in place."""
        return self._hooks is not None

    def put_on(self) -> bool:
        """Add the global hook. torch copies this dict in one go before it calls: safe any time."""
        module = sys.modules.get("torch.nn.modules.module")
        hooks = getattr(module, "_global_forward_pre_hooks", None)
        call = getattr(getattr(module, "Module", None), "_call_impl", None)
        if hooks is None or call is None or self.compiles:
            self.left = 0
            return False
        self._codes = (call.__code__,)
        self._calls = 0
        self._hooks = hooks
        torch = self._job.torch
        self._compile += patched(torch, "compile", first(self._before_compile))
        self._compile += patched(getattr(torch, "export", None), "export", first(self._before_export))
        # Not kept here: a search that is over must not wait for a collection.
        hooks[self._key] = make_hook(getattr(self._job.torch, "compiler", None), self._called)
        return True

    def take_off(self) -> None:
        """Remove it; may be called twice."""
        self._leave()
        self.left -= 1

    def _leave(self) -> None:
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            hooks.pop(self._key, None)
        take_off_all(self._compile)

    def _before_compile(self, *_: object, **__: object) -> None:
        self.compiles = True
        self._leave()

    def _before_export(self, *_: object, **__: object) -> None:
        self._leave()  # a strict one can't be made under a global hook

    def _called(self, module: object, _args: object) -> None:
        if get_ident() != self._owner and self._owner:
            return
        with self._ours:
            if self._is_root(sys._getframe(2)):
                self.found |= self._job.saw_root(module)
                if "ScriptModule" in {cls.__name__ for cls in type(module).__mro__}:
                    self.scripted = True
                self._calls += 1
                self.compiles |= type(module).__name__ == "OptimizedModule"  # what it holds is traced next
                if self.compiles or self._calls == self._most_calls:
                    self._leave()

    def _is_root(self, frame: FrameType | None) -> bool:
        calls = 0
        while frame is not None:
            code = frame.f_code
            if code in self._codes:
                calls += 1
                if calls > 1:
                    return False
            elif code.co_name in OF_OTHERS:
                return False
            frame = frame.f_back
        return True


def make_hook(compiler: object, called: Callable[..., None]) -> AnyCall:
    """A global hook, of which dynamo sees no more than its first line.

    What it reads are cells of its own: its module has no name under which dynamo could import it.
    """
    compiling: Callable[[], bool] = getattr(compiler, "is_compiling", bool)

    def hook(*given: object) -> None:
        if compiling():
            return
        called(*given)

    hook.__code__ = hook.__code__.replace(co_filename=TRACED)  # a graph would break at one left out
    return hook


class RootModules:
    """When to search: once the loop is known, and again where a step shows no forward."""

    def __init__(self, job: Job, fail: Callable[[BaseException], None]) -> None:
        self.scripted = False  # a root is a ScriptModule
        self._job, self._fail = job, fail
        self._search: RootSearch | None = None
        self._left = SEARCHES
        self._begun = False

    @property
    def searching(self) -> bool:
        """A search is on, or begins with the next step that may be searched."""
        return self._search is not None

    def begin(self, owner: int) -> None:
        """Search from the next boundary on."""
        self._left -= 1
        self._search = RootSearch(self._job, owner, self._fail)

    def check(self, owner: int, *, saw_forward: bool) -> None:
        """A sampled step that has a backward is over: search again where its forward was not seen."""
        if self._search is None and self._left > 0 and not saw_forward:
            self.begin(owner)

    def step_ended(self) -> bool:
        """Take the hook off where it was on; True where the search is over."""
        search = self._search
        if search is None or not self._begun:
            return False
        self._begun = False
        search.take_off()
        self.scripted |= search.scripted
        self._left = max(self._left, search.found)  # it may be replaced later: the next is looked for, too
        if self._job.roots or search.left <= 0:
            self._search = None
            return True
        return False

    def put_on(self, *, compiled: bool) -> bool:
        """Put the hook on for the step that begins, unless that is compiled; False where it is not on."""
        search = self._search
        if search is None or self._begun:
            return False
        if compiled or not search.put_on():
            self._search = None
            return False
        self._begun = True
        return True

    def stop(self) -> None:
        """From any thread, may be called twice."""
        search, self._search = self._search, None
        self._begun = False
        if search is not None:
            search.take_off()
