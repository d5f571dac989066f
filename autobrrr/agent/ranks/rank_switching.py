"""Remedies that go on and off on all ranks at one step: the protocol on the live loop.

In: what the sidecar wants changed, what other ranks want, step boundaries. Out: remedies applied and reverted
on the training thread at the agreed boundary, replies and events. The training thread waits for nobody. Who
attaches to all ranks of a machine hands the address of the first one's log to the others.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ..live_torch.collective_count import collective_count
from ..live_torch.graph_capture import capturing
from ..live_torch.live_job import Job
from ..loop.train_loop import Emit, TrainLoop
from ..remedies.active_remedies import AppliedRemedy, told
from ..remedies.registry import RefusalCode, Refused
from .shared_log import RegisterLost, SharedLog
from .switch_protocol import NotReady, RankMember, SwitchOutcome, SwitchPlan, drop, plan_key


def refuse_sharded(job: Job) -> None:
    """Raises Refused where each rank holds a part of the parameters: remedies were not tried on those."""
    if any(hasattr(each, "device_mesh") or type(each).__name__ == "FlatParameter" for each in job.updated):
        raise Refused("the job's parameters are sharded over the ranks")


FEWEST_LEAD_STEPS = 6  # from a plan to its step
LEAD_NS = 60_000_000  # the same, and between two tries; doubled at each
MOST_TRIES = 7  # over 8 s: a rank may be busy with a measurement
BUSY_MS, QUIET_MS = 10, 200  # between looks while something is to change, and otherwise
BUSY_FOR_S = 5.0  # after a plan,
MEETING_S = 30.0  # ... and once the ranks are meeting
EVERYTHING = ""  # as the name of a remedy to revert
ANY_CLASS_WITH_ALL = ("bitwise", "rounding")
Change = Mapping[str, object]
Count = Callable[[], int | None]  # collectives that this rank has begun: at a boundary the same for all


@dataclass(slots=True)
class SwitchRequest:
    """One change that this rank wants, until all have made it or none has."""

    number: int | None  # of the command to reply to; None: nobody waits
    change: Change
    tries: int = 0
    after_ns: int = 0  # when to try again
    plan: SwitchPlan | None = None  # of this try, once it stands


class RankSwitching:
    """This rank among all ranks. Plans are made, answered and carried out on the training thread.

    The agent's thread only leaves a request where there is none, and looks whether another rank has a plan.
    """

    def __init__(
        self, loop: TrainLoop, log: SharedLog, count: Count, emit: Emit, *, rank: int, ranks: int
    ) -> None:
        self._loop, self._active, self._emit = loop, loop.active, emit
        self._log, self._count, self.rank, self.ranks = log, count, rank, ranks
        self._member = self._joined()
        self._wanted: deque[SwitchRequest] = deque()  # filled by both threads
        self._request: SwitchRequest | None = None  # of those the one that is pursued
        self._leaves = False  # what is wanted is not tried again
        self._last: tuple[int, int] | None = None  # count and step of the last boundary that was looked at
        self._busy_until_s = time.monotonic() + MEETING_S
        self._own: set[int] = set()  # tokens of what our sidecar asked for

    @classmethod
    def meet(cls, loop: TrainLoop, address: str, emit: Emit) -> RankSwitching:
        """Join the log at this address, or create it if no rank has done so yet.

        Raises:
            RegisterLost: there is no way to the others; the message says why.
        """
        count = partial(collective_count, loop.torch)
        if count() is None:
            raise RegisterLost("the job has no process group that counts collectives")
        log, distributed = SharedLog.open(address) if address else SharedLog.create(), loop.torch.distributed
        rank, ranks = int(distributed.get_rank()), int(distributed.get_world_size())
        return cls(loop, log, count, emit, rank=rank, ranks=ranks)

    def _joined(self) -> RankMember:
        return RankMember(self._log, self.rank, self.ranks, number=self._log.plans() + 1)

    @property
    def address(self) -> str:
        """Of the log, for the other ranks."""
        return self._log.address

    @property
    def on(self) -> list[AppliedRemedy]:
        """Remedies that are on in all ranks."""
        return [applied for applied in self._active.applied if applied.together]

    @property
    def holds(self) -> bool:
        """Something is to change soon, or may be."""
        return self._member.held is not None or self._request is not None or bool(self._wanted)

    # The agent's thread

    def request(self, number: int | None, change: Change) -> None:
        """Have this changed on all ranks; the reply comes when it is done, or will not be. Raises Refused."""
        if self._request is not None or self._wanted:
            raise Refused("another change of all ranks is under way", RefusalCode.NOT_MET)
        self._wanted.append(SwitchRequest(number, change))
        self._loop.hot.poke()

    def pump(self) -> int:
        """See to what other ranks want; milliseconds until the next look."""
        with suppress(RegisterLost):  # who wants something hears of it
            if self._is_offered():
                self._busy_until_s = time.monotonic() + BUSY_FOR_S
                self._loop.hot.poke()  # it is answered at the next boundary
        busy = self.holds or time.monotonic() < self._busy_until_s
        return BUSY_MS if busy else QUIET_MS

    def meet_anew(self, address: str) -> None:
        """The ranks meet again, in the log at this address or in ours. Raises RegisterLost."""
        if not self.holds and not self._is_offered():
            if address and not self._log.is_at(address):
                before, self._log = self._log, SharedLog.open(address)
                before.leave()
            self._member = self._joined()
        self._busy_until_s = time.monotonic() + MEETING_S

    def leave(self, *, keep: bool, patience_s: float) -> None:
        """Revert on all ranks at one step what is on in all; where that does not come about, all keep it."""
        until_s = time.monotonic() + patience_s
        self._leaves = True
        while self.on and not keep and time.monotonic() < until_s and self._loop.hot.live:
            if not self.holds:
                self._leaves = False
                self._wanted.append(_undo(EVERYTHING))
                self._loop.hot.poke()
            time.sleep(self.pump() / 1000)
        self._leaves = self._member.leaving = True
        while self._member.held is not None and time.monotonic() < until_s and self._loop.hot.live:
            self._end_held()
            self._loop.hot.poke()
            time.sleep(BUSY_MS / 1000)

    def forked(self) -> None:
        """In a forked child: nothing of ours is left there."""
        self._log.leave()

    def close(self) -> None:
        """Nothing of the ranks is left here; the training thread does not come by any more."""
        with suppress(RegisterLost):  # where the agent went for an error it may hold a plan
            self._end_held()
        self._log.leave()

    def _is_offered(self) -> bool:
        return self._member.held is None and self._log.get(plan_key(self._member.number)) is not None

    def _end_held(self) -> None:
        held = self._member.held
        if held is not None:
            drop(self._member.register, held.number)

    # The training thread

    def at_boundary(self) -> bool:
        """Between two steps; whether the next boundary must not be passed by."""
        count = self._count()
        if count is None:
            return False
        last, self._last = self._last, (count, self._loop.hot.seq)
        if self._leaves and self._request is not None and self._request.plan is None:
            self._give_up(f"rank {self.rank} is leaving")
        if self._request is None and self._wanted:
            self._request = self._wanted.popleft()
        member, plan = self._member, self._member.held
        if plan is None:
            offered = self._offered(member, count, last)
            if offered is not None:
                self._try(member, offered)
        elif self._outcome(member, count) is SwitchOutcome.GO:
            self._carry_out(plan)
        request = self._request
        if request is not None and request.plan is not None and member.number > request.plan.number:
            self._conclude(request, request.plan)
        if self._active.watched and not self.holds:  # by itself it does no harm until all have reverted it
            self._wanted += [_undo(one.remedy.name) for one, _ in self._active.troubles() if one.bound]
        return self.holds

    def _offered(self, member: RankMember, count: int, last: tuple[int, int] | None) -> SwitchPlan | None:
        """The plan to answer now: of another rank, or of this one."""
        request = self._request
        try:
            if request is not None and last is not None and time.perf_counter_ns() >= request.after_ns:
                self._propose(request, count, last)
            return member.offer(count)
        except RegisterLost as lost:
            self._give_up(f"the ranks can't be asked: {lost}")
            return None

    def _propose(self, request: SwitchRequest, count: int, last: tuple[int, int]) -> None:
        """Put a plan there, so far ahead that all ranks hear of it in time; another one may come first."""
        a_step = max(1, -(-(count - last[0]) // max(1, self._loop.hot.seq - last[1])))
        steps = max(FEWEST_LEAD_STEPS, (LEAD_NS << request.tries) // max(1, self._loop.step_ns) + 2)
        at, change = count + a_step * steps, json.dumps(request.change, separators=(",", ":"))
        plan = SwitchPlan(number=self._member.number, at=at, change=change)
        if self._log.put(plan_key(plan.number), plan.text()) == plan.text():
            request.plan = plan

    def _conclude(self, request: SwitchRequest, plan: SwitchPlan) -> None:
        """Our plan was dropped."""
        kind, why = self._member.refusal(plan)
        request.tries, request.plan = request.tries + 1, None
        request.after_ns = time.perf_counter_ns() + (LEAD_NS << request.tries)
        if kind is NotReady.NEVER or request.tries == MOST_TRIES:
            self._give_up(why)

    def _give_up(self, why: str) -> None:
        request, self._request = self._request, None
        if request is not None and request.number is not None:
            self._emit({"reply": request.number, "ok": False, "why": why, "code": RefusalCode.UNFIT.value})

    def _outcome(self, member: RankMember, count: int) -> SwitchOutcome | None:
        try:
            return member.outcome(count)
        except RegisterLost as lost:  # what the others do can't be known: the agent goes, and says so
            raise RegisterLost(f"{lost}; the ranks may differ from here on") from None

    def _try(self, member: RankMember, plan: SwitchPlan) -> None:
        task = self._loop.measuring.task
        busy = None if task is None else task.name
        if capturing(self._loop.torch):
            busy = "the capture of a CUDA graph"
        if busy is not None:
            member.answer(plan, f"rank {self.rank} is busy with {busy}", NotReady.LATER)
        else:
            member.answer(plan, self._why_not(plan))

    def _why_not(self, plan: SwitchPlan) -> str | None:
        """Try the offered change and take it back, before any step runs with it; why it can't be done."""
        change = _read(plan.change)
        if change.get("do") == "undo":
            return None
        try:
            refuse_sharded(self._loop.job)  # where steps are long it was not known when the ranks met
            applied = self._apply(change)
        except Refused as refused:
            return f"rank {self.rank}: {refused}"[:200]
        why = None
        if applied.remedy.cls not in ANY_CLASS_WITH_ALL:
            why = f"its class is {applied.remedy.cls} on rank {self.rank}"
        loss = self._loop.undo(applied)
        return why if loss is None else f"rank {self.rank}: it could not be reverted: {loss}"[:200]

    def _apply(self, change: Mapping[str, object]) -> AppliedRemedy:
        options, allowed = change.get("options"), change.get("allowed")
        return self._loop.apply(
            str(change.get("remedy")),
            options if isinstance(options, dict) else {},
            allowed if isinstance(allowed, list) else None,
            together=True,
        )

    def _carry_out(self, plan: SwitchPlan) -> None:
        number, change = None, _read(plan.change)
        if self._request is not None and self._request.plan == plan:
            number, self._request = self._request.number, None
        if change.get("do") == "undo":
            self._revert(str(change.get("remedy")), number)
            return
        try:
            applied = self._apply(change)
        except Refused as refused:  # it could be applied some steps ago: it goes off again, on all ranks
            self._wanted.append(_undo(str(change.get("remedy"))))
            if number is not None:
                self._emit({"reply": number, "ok": False, "why": str(refused), "code": refused.code.value})
            return
        if number is not None:
            self._own.add(applied.token)
        self._tell(number, {"token": applied.token, "class": applied.remedy.cls})

    def _revert(self, name: str, number: int | None) -> None:
        for applied in reversed(self.on):
            if name not in (EVERYTHING, applied.remedy.name):
                continue
            loss = self._loop.undo(applied)
            if loss is not None or (number is None and applied.token in self._own):
                self._emit(applied.lost(loss or "all ranks have reverted it"))
            self._own.discard(applied.token)
        self._tell(number, {})

    def _tell(self, number: int | None, what: Mapping[str, object]) -> None:
        if number is not None:
            seq = self._loop.hot.seq
            self._emit({"reply": number, "ok": True, "arm": self._active.arm, "seq": seq, **what})
        else:
            self._emit({"event": "together", "active": [told(applied) for applied in self._active.applied]})


def _undo(remedy: str) -> SwitchRequest:
    return SwitchRequest(None, {"do": "undo", "remedy": remedy})


def _read(text: str) -> Mapping[str, object]:
    found: Mapping[str, object] = json.loads(text)
    return found
