"""A recipe's remedies, applied from the first moment that each of them can be.

In: the plan of a preloaded job. Out: one line of JSON for each remedy in the outcome file, and at
the end of the process how long its steps took. What needs no optimizer is on before the script's
next line; what is for a DataLoader or for DistributedDataParallel when the first one is used; the rest goes
on at the ends of the first steps. Errors become lines, and so does what never got its chance: a loop that
updates by hand gives none.
"""

from __future__ import annotations

import atexit
import contextlib
import fnmatch
import functools
import inspect
import json
import os
import sys
from _thread import get_ident
from collections import deque
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from types import ModuleType
from typing import Any

from .live_torch.dispatch_modes import within_backward
from .live_torch.job_signals import Ours
from .live_torch.live_job import Job
from .live_torch.loader_epochs import EPOCHS
from .live_torch.module_call_slot import Call
from .live_torch.patches import Patch, patched, take_off_all
from .loop.root_modules import RootModules
from .loop.step_pattern import StepPattern
from .remedies.active_remedies import ActiveRemedies, AppliedRemedy
from .remedies.registry import CLASSES, Refused, up_to

LAST_STEP = 8  # what still refuses then has refused
KEPT = 4096  # durations
CONSTRUCTED = "ddp."
OF_A_THREAD = "threads.intra_op"  # a thread that has worked on tensors before keeps its own number


class RecipeStartup:
    """The plan of one process."""

    def __init__(self, torch: ModuleType, active: ActiveRemedies, boot: Mapping[str, object]) -> None:
        self._torch = torch
        self._active = active
        self._job = Job(torch)
        self._outcome = boot.get("outcome")
        plan: Any = boot.get("plan") or {"remedies": []}
        entries = plan["remedies"] if is_for(plan, script_names()) else ()
        self._waiting = {entry["name"]: entry.get("options") or {} for entry in entries}
        # Exactness classes within what the recipe declares; None where it declares none.
        self._allowed = up_to(plan["class"]) if plan.get("class") in CLASSES else None
        self._pid = os.getpid()
        self._constructions: list[Patch] = []
        self._at_construction: list[AppliedRemedy] = []
        self._of_a_thread: list[AppliedRemedy] = []
        self._refusals: dict[str, str] = {}
        self._roots = RootModules(self._job, self._failed)
        self._owner = 0
        self._busy = False
        self._closed = False
        self._pattern = StepPattern()
        self._steps = 0
        self._last_ns = 0
        self._durations: deque[int] = deque(maxlen=KEPT)

    def begin(self) -> None:
        """Apply what can be applied, wait in the optimizer hook for the rest. On the agent's thread."""
        if not self._waiting:
            return
        self._try_all()
        optimizer = getattr(getattr(self._torch, "optim", None), "Optimizer", None)
        patched(optimizer, "_optimizer_step_code", self._tap)  # stays: it times the run
        atexit.register(self._tell_end)
        if self._waiting:
            EPOCHS.listen(self._torch, self._begins)
            parallel = getattr(getattr(self._torch, "nn", None), "parallel", None)
            wrapper = getattr(parallel, "DistributedDataParallel", None)
            self._constructions += patched(wrapper, "__init__", self._constructed)

    def _tap(self, original: Callable[..., object]) -> Callable[[object], None]:
        def after_update(self_: object) -> None:
            now = perf_counter_ns()
            within = within_backward(self._torch)  # its end is that of the step
            if not within and (get_ident() == self._owner or not self._owner):
                ended = self._pattern.fire(id(self_))
                if ended and self._last_ns:
                    self._durations.append(now - self._last_ns)
                    self._steps += 1
                self._last_ns = now if ended else self._last_ns
                if not self._busy:
                    self._guarded(lambda: self._after(self_, ended=ended))
                if self._active.watched and not self._busy:
                    self._guarded(self._undo_troubled)
            original(self_)

        return after_update

    def _after(self, optimizer: object, *, ended: bool) -> None:
        if not self._owner:
            self._owner = get_ident()
            self._apply_again(self._of_a_thread)
        is_new = self._job.saw_optimizer(optimizer)
        if is_new:
            self._active.renew(self._job)  # what was applied to the first alone
        if self._closed:
            return
        if ended and not is_new:  # all optimizers of a step have come by
            self._roots.step_ended()
        if is_new or (ended and self._job.roots):
            self._try_all()
        if self._steps >= LAST_STEP:
            self._close()
        elif ended and self._waiting:
            if not self._steps:
                self._roots.begin(self._owner)
            self._roots.put_on(compiled=self._job.check.compiled([]))

    def _undo_troubled(self) -> None:
        """What turns out badly by itself is undone, here as in a session."""
        for applied, why in self._active.troubles():
            self._active.undo(applied)
            self._tell({"remedy": applied.remedy.name, "status": "refused", "why": why})

    def _look(self) -> None:
        """A loader or a construction is at hand."""
        if self._busy:
            return
        if not self._closed:
            self._guarded(self._try_all)
        if self._job.ddp_arguments is not None:
            self._guarded(lambda: self._apply_again(self._at_construction))

    def _apply_again(self, on: list[AppliedRemedy]) -> None:
        """Each later construction, and the thread that trains, needs what was applied for the first."""
        for applied in on:
            with contextlib.suppress(Refused):  # it has it already, or sets it itself
                applied.again(self._job)

    def _begins(self, loader: object) -> None:
        self._job.saw_loader(loader)
        self._look()

    def _constructed(self, original: Call) -> Call:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def __init__(self_: object, *args: object, **kwargs: object) -> object:
            if os.getpid() != self._pid:
                return original(self_, *args, **kwargs)
            try:
                arguments = dict(signature.bind(self_, *args, **kwargs).arguments)
            except TypeError:
                return original(self_, *args, **kwargs)  # torch's own error, from its own place
            first, *_ = signature.parameters
            del arguments[first]
            self._job.ddp_arguments = arguments
            try:
                self._look()
            finally:
                self._job.ddp_arguments = None
            return original(self_, **arguments)

        return __init__

    def _close(self) -> None:
        self._closed = True
        if not self._at_construction:
            EPOCHS.leave(self._begins)
            take_off_all(self._constructions)
        self._roots.stop()
        for name, why in self._refusals.items():
            if name in self._waiting:
                self._tell({"remedy": name, "status": "refused", "why": why})

    def _guarded(self, work: Callable[[], None]) -> None:
        self._busy = True
        try:
            with Ours(Exception, told=self._failed):
                work()
        finally:
            self._busy = False

    def _failed(self, error: BaseException) -> None:
        self._closed = True
        self._roots.stop()
        for name in self._waiting:
            self._tell({"remedy": name, "status": "refused", "why": f"{type(error).__name__}: {error}"})
        self._waiting.clear()

    def _try_all(self) -> None:
        found = True
        while found:  # one may be what another waits for
            found = False
            for name, options in list(self._waiting.items()):
                try:
                    applied = self._active.apply(
                        self._job, name, options, planned=True, allowed=self._allowed
                    )
                except Refused as refused:
                    self._refusals[name] = str(refused)
                    continue
                found = True
                del self._waiting[name]
                if name.startswith(CONSTRUCTED):
                    self._at_construction.append(applied)
                elif name == OF_A_THREAD:
                    self._of_a_thread.append(applied)
                self._tell({"remedy": name, "status": "applied", "why": "", "class": applied.remedy.cls})

    def _tell(self, line: dict[str, object]) -> None:
        if isinstance(self._outcome, str):
            try:
                with open(self._outcome, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
            except OSError:
                self._outcome = None  # its reader is gone

    def _tell_end(self) -> None:
        if os.getpid() != self._pid:
            return
        if not self._closed:
            for name in self._waiting:
                why = f"it never got its chance: {self._refusals.get(name, 'nothing was trained')}"
                self._tell({"remedy": name, "status": "refused", "why": why})
        kept = sorted(self._durations)
        count = len(kept)
        if kept:
            took_ns = {
                "count": count,
                "mean": sum(kept) // count,
                "median": kept[count // 2],
                "p99": kept[min(count - 1, count * 99 // 100)],
            }
            self._tell({"pid": os.getpid(), "steps": self._steps, "step_ns": took_ns})


def is_for(plan: Mapping[str, object], names: tuple[str, ...]) -> bool:
    """Whether this process runs the script that the plan is for; each process of a run asks for itself."""
    pattern = plan.get("script")
    if not isinstance(pattern, str) or not names:
        return True
    return any(
        fnmatch.fnmatchcase(name if "/" in pattern else os.path.basename(name), pattern) for name in names
    )


def script_names() -> tuple[str, ...]:
    """What this process runs: its script's path, or the file of its module; empty for `-c`."""
    words = list(getattr(sys, "orig_argv", []))[1:]
    if "-c" in words[:4] and "-m" not in words[:4]:
        return ()
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    found = [main] if isinstance(main, str) else []
    if "-m" in words[:-1]:
        found.append(words[words.index("-m") + 1].replace(".", "/") + ".py")
    return tuple(found)
