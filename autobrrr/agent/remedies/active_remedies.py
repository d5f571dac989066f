"""Remedies on the live job: applied with a token, undone by it, in order.

In: a name from the registry and its options; everything here runs on the training thread at a
step boundary. Out: tokens, the arm (raised by one at every change), and
what could not be undone. Two remedies with one target never stand together, so any can be undone
without the others noticing.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..job_facts import rank_of
from ..live_torch.compiled_code import STEADY
from ..live_torch.graph_capture import capturing
from ..live_torch.job_signals import ANY, Ours, raised_by_handler
from ..live_torch.live_job import Job
from .device_headroom import MemoryWatch, why_no_room
from .registry import RefusalCode, Refused, Remedy, Undo, WatchedUndo, check_class

OF_OPTIMIZERS = "optimizer."
BATCH_SIZE = "loader.batch_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedRemedy:
    """One remedy that is on."""

    token: int
    remedy: Remedy
    options: Mapping[str, object]
    undo: Undo
    planned: bool  # of the recipe that the job was started with
    together: bool = False  # on in all ranks since one step

    @property
    def bound(self) -> bool:
        """This rank alone without it would drift from the others."""
        return self.together and _drifts(self.remedy)

    def again(self, job: Job) -> Undo:
        """Apply it to what is there only now as well."""
        return self.remedy.apply(job, self.remedy.option_values(self.options))

    def lost(self, why: str) -> dict[str, object]:
        """As the sidecar hears that it is off by itself, or can't be undone."""
        return {"event": "remedy_lost", "token": self.token, "remedy": self.remedy.name, "why": why}


class ActiveRemedies:
    """The remedies that are on.

    Args:
        root: Where `proc` and `sys` are; "/" but in tests.
    """

    def __init__(self, registry: Mapping[str, Remedy], root: Path = Path("/")) -> None:
        self._registry = registry
        self.memory = MemoryWatch(root)
        self._applied: list[AppliedRemedy] = []
        self._next = 1
        self._releases: dict[str, Undo] = {}  # by remedy: what it keeps between an undo and the next apply
        self._more: dict[int, Undo] = {}  # by token: for optimizers that came later
        self.arm = 0

    @property
    def applied(self) -> list[AppliedRemedy]:
        """Those that are on, the oldest first."""
        return list(self._applied)

    @property
    def ours(self) -> list[AppliedRemedy]:
        """Those that go with the session: not those of a recipe, nor what only all ranks can revert."""
        return [applied for applied in self._applied if not applied.planned and not applied.bound]

    @property
    def compiled(self) -> bool:
        """A remedy that is on stands in the calls of modules: hooks on them would disturb it."""
        return any("module.code" in applied.remedy.targets for applied in self._applied)

    @property
    def watched(self) -> bool:
        """A remedy that is on may turn out badly by itself."""
        return self.memory.trouble is not None or any(
            isinstance(applied.undo, WatchedUndo) for applied in self._applied
        )

    def look_at_memory(self) -> bool:
        """On the agent's thread: whether the newest remedy of the session must go for want of memory."""
        return self.memory.look(on=any(not applied.planned for applied in self._applied))

    def troubles(self) -> list[tuple[AppliedRemedy, str]]:
        """Remedies that must be undone after all, each with its reason."""
        found = []
        for applied in self._applied:
            why = applied.undo.trouble() if isinstance(applied.undo, WatchedUndo) else None
            if why is not None:
                found.append((applied, why))
        if self.memory.trouble is not None:
            found += [(applied, self.memory.trouble) for applied in self._applied if not applied.planned][-1:]
        return found

    def apply(
        self,
        job: Job,
        name: str,
        options: Mapping[str, object],
        *,
        planned: bool = False,
        allowed: Sequence[str] | None = None,
        together: bool = False,
        prepare: bool = False,
    ) -> AppliedRemedy:
        """Apply a remedy now.

        Args:
            allowed: Exactness classes that it may have on this job; None: any.
            together: All ranks of the job do so at this step.
            prepare: It only shows what it would compile, until it is undone.

        Raises:
            Refused: unknown, options that don't fit, a target that another remedy holds or the job's compiled
                code needs, a class on this job that is none of those allowed, or the remedy itself says that
                it does not fit.
        """
        remedy = self._registry.get(name)
        if remedy is None:
            raise Refused(f"no remedy {name} in this agent")
        if remedy.reach == "relaunch" and not planned:
            raise Refused(f"{name} needs a new start of the job")
        ranks = _ranks(job)
        if ranks > 1 and not planned and not together and _drifts(remedy):
            raise Refused(
                f"this is one of {ranks} ranks, and {name} does not keep the bits: its weights would drift "
                "from the others'; a recipe switches it on in all of them from the start"
            )
        values = remedy.option_values(options)
        for other in self._applied:
            shared = set(other.remedy.targets) & set(remedy.targets)
            if not planned:  # what a recipe sets from the start stays as it is
                shared |= remedy.disturbs(other.remedy)
            if other.remedy.name == name or shared:
                raise Refused(f"{other.remedy.name} (token {other.token}) uses {', '.join(shared) or name}")
        if not planned and set(remedy.targets) & set(STEADY) and job.check.compiled([]):
            raise Refused("the job runs compiled code of its own, which torch would compile anew")
        try:
            check_class(remedy.cls, allowed)
            if capturing(job.torch):
                raise Refused("the job captures a CUDA graph just now", RefusalCode.NOT_MET)
            why = why_no_room(job, remedy, self.memory.root, planned=planned)
            if why is not None:
                raise Refused(why)
            self.memory.begin()
            job.planned, job.prepares = planned, prepare
            with warnings.catch_warnings():  # torch's own imports warn
                warnings.simplefilter("ignore")
                undo = remedy.apply(job, values)
        except Exception as error:
            if isinstance(error, Refused) or raised_by_handler(error):
                raise
            raise Refused(f"{name} raised {type(error).__name__}: {error}") from error
        release = remedy.release
        if release is not None:
            self._releases[name] = lambda: release(job.torch)
        applied = AppliedRemedy(
            token=self._next,
            remedy=remedy,
            options=dict(options),
            undo=undo,
            planned=planned,
            together=together,
        )
        self._next += 1
        self.arm += 1
        self._applied.append(applied)
        return applied

    def renew(self, job: Job) -> None:
        """An optimizer has stepped that was not there before: what holds for the others holds for it too.

        For all that came later at once: a job may make one in each step, and what is kept must not grow.
        """
        if capturing(job.torch):
            return
        for applied in self._applied:
            if any(target.startswith(OF_OPTIMIZERS) for target in applied.remedy.targets):
                with ANY:  # where it does not fit this one, that updates as the script says
                    self._undo_more(applied)
                    self._more[applied.token] = applied.again(job)

    def find(self, token: object) -> AppliedRemedy:
        """The remedy of a token; raises Refused."""
        for applied in self._applied:
            if applied.token == token:
                return applied
        raise Refused(gone(token))

    def may_go(self, job: Job, applied: AppliedRemedy) -> None:
        """Raises Refused where this rank without the remedy would drift from the others, which have it on."""
        ranks = _ranks(job)
        if ranks > 1 and applied.planned and _drifts(applied.remedy):
            raise Refused(
                f"this is one of {ranks} ranks, and the recipe has {applied.remedy.name} on in all of them: "
                "it does not keep the bits, so without it these weights would drift from the others'"
            )

    def undo(self, applied: AppliedRemedy) -> str | None:
        """Undo one remedy. Returns why it failed; the remedy counts as gone either way."""
        self._applied.remove(applied)
        self.memory.reverted()
        self.arm += 1
        failed: list[str] = []
        with Ours(Exception, told=lambda error: failed.append(f"{type(error).__name__}: {error}")):
            self._undo_more(applied)
            applied.undo()
        return failed[0] if failed else None

    def _undo_more(self, applied: AppliedRemedy) -> None:
        more = self._more.pop(applied.token, None)
        if more is not None:
            more()

    def undo_all(self) -> list[dict[str, object]]:
        """Undo every remedy of the session, the youngest first, and let go of what they kept.

        Returns:
            An event for each that could not be undone.
        """
        tried = [(applied, self.undo(applied)) for applied in reversed(self.ours)]
        self.let_go()
        return [applied.lost(why) for applied, why in tried if why is not None]

    @property
    def kept(self) -> list[str]:
        """Remedies that are off, and have kept something for the next time that they are switched on."""
        on = {applied.remedy.release for applied in self._applied}
        return [name for name in self._releases if self._registry[name].release not in on]

    def let_go(self) -> None:
        """Give up what is kept. On the training thread, between two steps."""
        for name in self.kept:
            self._releases.pop(name)()

    def forget(self) -> None:
        """Leave the session's remedies on for good."""
        self._applied = [applied for applied in self._applied if applied.planned or applied.bound]


def told(applied: AppliedRemedy) -> dict[str, object]:
    """What the sidecar keeps of it."""
    return {
        "token": applied.token,
        "remedy": applied.remedy.name,
        "options": dict(applied.options),
        "class": applied.remedy.cls,
        "reach": applied.remedy.reach,
        "planned": applied.planned,
    }


def gone(token: object) -> str:
    """What is said of a token whose remedy is off."""
    return f"no remedy has the token {token}"


def _ranks(job: Job) -> int:
    return rank_of(job.torch)[1] or 1


def _drifts(remedy: Remedy) -> bool:
    """Whether one rank alone with it, or alone without it, computes other weights than the others.

    How a rank comes by its batches is its own affair, as long as they are as many and as large.
    """
    feeds = all(target.startswith("loader.") and target != BATCH_SIZE for target in remedy.targets)
    return remedy.cls != "bitwise" and not (feeds and remedy.targets)
