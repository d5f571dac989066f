"""Finds the modules that the training loop calls itself, with a global hook that lives for a step.

In: every module call of a step. Out: `Job.saw_root` for those that no other module called. A call is a root
if no frame of `Module._call_impl` lies below it on the stack, and none that loads a batch: transforms of a
dataset are no model. A module that each step makes anew, as a solver's wrapper around the model, is looked
through: what it calls is the root. dynamo traces global hooks into what it compiles: the search ends where
`torch.compile` is called, and under dynamo's eyes its hook is a plain function that returns at once.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable
from types import CodeType, FrameType

from ..live_torch.job_signals import Ours
from ..live_torch.live_job import Job
from ..live_torch.module_call_slot import Call
from ..live_torch.patches import Patch, around, patched, take_off_all

TRIES = 6  # steps without a root call until the search ends
SEARCHES = 3  # the loop may come to call other modules
# The file names of the other functions tell dynamo to leave them out.
TRACED = "<autobrrr importlib._bootstrap agent.loop.root_modules>"
# Callers of modules that are no forward: activation checkpointing inside backward, a DataLoader's batch.
OF_OTHERS = ("_engine_run_backward", "_next_data")


class RootModules:
    """When to search: once the loop is known, and again where a step shows no forward. A step at a time.

    Attributes:
        scripted: A root is a ScriptModule.
        compiles: `torch.compile` or `torch.export.export` was called in a step that was searched.
    """

    def __init__(self, job: Job, fail: Callable[[BaseException], None]) -> None:
        self.scripted = self.compiles = False
        self._job = job
        self._ours = Ours(Exception, told=fail)
        self._owner = 0
        self._searches = SEARCHES
        self._left = 0  # steps of this search; 0: none is under way
        self._begun = False  # with the step that runs
        self._found = False  # a root that was not known
        self._hooks: dict[object, object] | None = None
        self._key = object()
        self._codes: tuple[CodeType, ...] = ()
        self._kinds = set[type]()  # of this step's roots
        self._passing = set[type]()  # of those that were gone with their step
        self._patches: list[Patch] = []

    @property
    def searching(self) -> bool:
        """A search is on, or begins with the next step that may be searched."""
        return self._left > 0

    def begin(self, owner: int) -> None:
        """Search from the next boundary on, what this thread calls; 0: any thread."""
        self._searches -= 1
        self._owner, self._left, self._found = owner, TRIES, False

    def check(self, owner: int, *, saw_forward: bool) -> None:
        """A sampled step that has a backward is over: search again where its forward was not seen."""
        if not self._left and self._searches > 0 and not saw_forward:
            self.begin(owner)

    def put_on(self, *, compiled: bool) -> bool:
        """Add the hook for the step that begins, unless that is compiled; False where it is not on.

        torch copies the dict of global hooks in one go before it calls them: safe at any time.
        """
        if not self._left or self._begun:
            return False
        module = sys.modules.get("torch.nn.modules.module")
        hooks = getattr(module, "_global_forward_pre_hooks", None)
        call = getattr(getattr(module, "Module", None), "_call_impl", None)
        if hooks is None or call is None or compiled or self.compiles:
            self._left = 0
            return False
        self._begun = True
        self._codes = (call.__code__,)
        self._hooks = hooks
        torch = self._job.torch
        self._patches += patched(torch, "compile", around(self._before_compile))
        # A strict export can't be made under a global hook.
        self._patches += patched(getattr(torch, "export", None), "export", around(self._before_compile))
        # Not kept here: a search that is over must not wait for a collection.
        hooks[self._key] = make_hook(getattr(torch, "compiler", None), self._called)
        return True

    def step_ended(self) -> bool:
        """Take the hook off where it was on; True where the search is over."""
        if not self._begun:
            return False
        self._begun = False
        self._leave()
        self._left -= 1
        # It may be replaced later: the next is looked for, too.
        self._searches = max(self._searches, self._found)
        if self._job.roots:
            self._left = 0
            self._kinds.clear()
        self._passing |= self._kinds
        return not self._left

    def stop(self) -> None:
        """From any thread, may be called twice."""
        self._left, self._begun = 0, False
        self._leave()

    def _leave(self) -> None:
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            hooks.pop(self._key, None)
        take_off_all(self._patches)

    def _before_compile(self, *_: object, **__: object) -> None:
        self.compiles = True
        self._leave()

    def _called(self, module: object, _args: object) -> None:
        if get_ident() != self._owner and self._owner:
            return
        with self._ours:
            if type(module) not in self._passing and self._is_root(sys._getframe(2)):
                self._kinds.add(type(module))
                self._found |= self._job.saw_root(module)
                self.scripted |= "ScriptModule" in {cls.__name__ for cls in type(module).__mro__}
                if type(module).__name__ == "OptimizedModule":  # what it holds is traced next
                    self._before_compile()

    def _is_root(self, frame: FrameType | None) -> bool:
        calls = 0
        while frame is not None:
            code = frame.f_code
            if code in self._codes:
                calls += not self._passing or type(frame.f_locals.get("self")) not in self._passing
                if calls > 1:
                    return False
            elif code.co_name in OF_OTHERS:
                return False
            frame = frame.f_back
        return True


def make_hook(compiler: object, called: Callable[..., None]) -> Call:
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
