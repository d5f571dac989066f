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

from ..live_torch.collective_count import collective_count
from ..live_torch.graph_capture import capturing
from ..live_torch.live_job import Job
from ..loop.job_watches import job_watches
from ..loop.train_loop import TrainLoop
from ..remedies.active_remedies import AppliedRemedy, NotUndone, told
from ..remedies.registry import RefusalCode, Refused
from .shared_log import RegisterLost, SharedLog
from .switch_protocol import (
    READY,
    NotReady,
    RankMember,
    SwitchOutcome,
    SwitchPlan,
    drop,
    outcome_key,
    plan_key,
    ready_key,
)


def refuse_sharded(job: Job) -> None:
    """Raises Refused where each rank holds a part of the parameters: remedies were not tried on those."""
    if any(hasattr(each, "device_mesh") or type(each).__name__ == "FlatParameter" for each in job.updated):
        raise Refused("the job's parameters are sharded over the ranks")


FEWEST_LEAD_STEPS = 6  # from a plan to its step
LEAD_S = 0.06  # the same; doubled at each further try
MOST_TRIES = 4  # each with twice the lead
MEASURED_S = 10.0  # so long may a rank be busy with a measurement
BUSY_MS, QUIET_MS = 10, 200  # between looks while something is to change, and otherwise
BUSY_FOR_S = 5.0  # after a plan,
MEETING_S = 30.0  # ... and once the ranks are meeting
EVERYTHING = ""  # as the name of a remedy to revert
ANY_CLASS_WITH_ALL = ("bitwise", "rounding")
PASSING = (None, NotReady.LATE, NotReady.BUSY)  # worth another try
Change = Mapping[str, object]
Emit = Callable[[dict[str, object]], None]
Count = Callable[[], int | None]  # collectives that this rank has begun: at a boundary the same for all


class SwitchRequest:
    """One change that this rank wants, until all have made it or none has."""

    def __init__(self, number: int | None, change: Change) -> None:
        self.number = number  # of the command to reply to; None: nobody waits
        self.text = json.dumps(change, separators=(",", ":"))
        self.tries = 0
        self.until_s = time.monotonic() + MEASURED_S
        self.plan: SwitchPlan | None = None


class RankSwitching:
    """This rank among all ranks. `at_boundary` belongs to the training thread, the rest to the agent's.

    No lock is held between the two: what both change is a list that one of them replaces and the other fills,
    and a queue.
    """

    def __init__(
        self, loop: TrainLoop, log: SharedLog, count: Count, emit: Emit, *, rank: int, ranks: int
    ) -> None:
        self._loop, self._active, self._emit = loop, loop.active, emit
        self._log, self._count, self.rank, self.ranks = log, count, rank, ranks
        self._member = self._joined()
        self._request: SwitchRequest | None = None
        self._seen: list[tuple[int, int]] | None = None  # once asked for: two counts at boundaries, and when
        self._busy_until_s = time.monotonic() + MEETING_S
        self._amiss: deque[str] = deque()  # remedies that are on elsewhere, and can't be here
        self._own: set[int] = set()  # tokens of what our sidecar asked for

    @classmethod
    def meet(cls, loop: TrainLoop, address: str, emit: Emit) -> RankSwitching:
        """Join the log at this address, or create it if no rank has done so yet.

        Raises:
            RegisterLost: there is no way to the others; the message says why.
        """
        count = collective_count(loop.torch)
        if count() is None:
            raise RegisterLost("the job has no process group that counts collectives")
        log, distributed = SharedLog.open(address) if address else SharedLog.create(), loop.torch.distributed
        rank, ranks = int(distributed.get_rank()), int(distributed.get_world_size())
        return cls(loop, log, count, emit, rank=rank, ranks=ranks)

    def _joined(self) -> RankMember:
        return RankMember(self._log, self.rank, self.ranks, number=self._log.plans() + 1)

    @property
    def address(self) -> str:
        """Of the log, for the other ranks. Raises RegisterLost."""
        return self._log.address

    @property
    def on(self) -> list[AppliedRemedy]:
        """Remedies that are on in all ranks."""
        return [applied for applied in self._active.applied if applied.together]

    @property
    def holds(self) -> bool:
        """Something is to change soon, or may be."""
        return self._member.held is not None or self._request is not None

    # The agent's thread

    def request(self, number: int | None, change: Change) -> None:
        """Have this changed on all ranks; the reply comes when it is done, or will not be. Raises Refused."""
        if self._request is not None:
            raise Refused("another change of all ranks is under way", RefusalCode.NOT_MET)
        self._request = SwitchRequest(number, change)
        self._gauge()

    def pump(self) -> int:
        """See to what is wanted, here and elsewhere; milliseconds until the next look."""
        try:
            if self._is_offered():
                self._busy_until_s = time.monotonic() + BUSY_FOR_S
                self._loop.hot.poke()  # it is answered at the next boundary
            if self._amiss and self._request is None:
                self.request(None, {"do": "undo", "remedy": self._amiss.popleft()})
            if self._request is not None:
                self._pursue(self._request)
        except (RegisterLost, ValueError) as lost:
            self._give_up(f"the ranks can't be asked: {lost}")
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
        self._give_up("this rank is leaving")
        while self.on and not keep and time.monotonic() < until_s and self._loop.hot.live:
            if not self.holds:
                self.request(None, {"do": "undo", "remedy": EVERYTHING})
            time.sleep(self.pump() / 1000)
        self._request = None
        self._member.leaving = True
        while self._member.held is not None and time.monotonic() < until_s and self._loop.hot.live:
            self._end_held()
            self._loop.hot.poke()
            time.sleep(BUSY_MS / 1000)

    def forked(self) -> None:
        """In a forked child: nothing of ours is left there."""
        self._log.leave()

    def close(self) -> None:
        """Nothing of the ranks is left here; the training thread does not come by any more."""
        with suppress(RegisterLost, ValueError):  # where the agent went for an error it may hold a plan
            self._end_held()
        self._log.leave()

    def _is_offered(self) -> bool:
        return self._member.held is None and self._log.get(plan_key(self._member.number)) is not None

    def _end_held(self) -> None:
        held = self._member.held
        if held is not None:
            drop(self._member.register, held.number)

    def _pursue(self, request: SwitchRequest) -> None:
        plan = request.plan
        if plan is None:
            self._propose(request)
            return
        is_ours = self._log.get(plan_key(plan.number)) == plan.text()
        outcome = self._log.get(outcome_key(plan.number)) if is_ours else None
        if self._member.number <= plan.number or (is_ours and outcome is None):
            return  # its step is still to come here
        if outcome == SwitchOutcome.GO.value:
            self._request = None  # its reply was given at the boundary
            return
        kind, why = self._refusal(plan) if is_ours else (NotReady.LATE, "another plan came first")
        is_busy = kind is NotReady.BUSY and time.monotonic() < request.until_s
        request.tries += is_ours and not is_busy
        request.plan = None
        if is_busy or (kind in PASSING and request.tries < MOST_TRIES):
            self._gauge()
        else:
            self._give_up(why)

    def _refusal(self, plan: SwitchPlan) -> tuple[NotReady | None, str]:
        """What kept the ranks from it: the first that refused, else those that said nothing."""
        said = [self._log.get(ready_key(plan.number, rank)) for rank in range(self.ranks)]
        refused = next((one for one in said if one not in (None, READY)), None)
        if refused is not None:
            kind, _, why = refused.partition(" ")
            return NotReady(kind), why
        missing = ", ".join(str(rank) for rank, one in enumerate(said) if one is None)
        return None, f"rank {missing} did not answer; a remedy goes on in all ranks or in none"

    def _propose(self, request: SwitchRequest) -> None:
        seen = self._seen
        if seen is None or len(seen) < 2 or self._member.held is not None:
            return
        (count, ns), (later, later_ns) = seen
        a_step, step_s = max(1, later - count), (later_ns - ns) / 1e9
        lead = max(FEWEST_LEAD_STEPS, round(LEAD_S * (1 << request.tries) / max(step_s, 1e-6)) + 2)
        plan = SwitchPlan(number=self._member.number, at=later + a_step * lead, change=request.text)
        request.plan = plan  # first: it may be carried out as soon as it stands
        self._log.put(plan_key(plan.number), plan.text())
        self._loop.hot.poke()

    def _gauge(self) -> None:
        self._seen = []
        self._busy_until_s = time.monotonic() + BUSY_FOR_S
        self._loop.hot.poke()

    def _give_up(self, why: str) -> None:
        request, self._request = self._request, None
        if request is not None and request.number is not None:
            self._emit({"reply": request.number, "ok": False, "why": why, "code": RefusalCode.UNFIT.value})

    # The training thread

    def at_boundary(self) -> bool:
        """Between two steps; whether the next boundary must not be passed by."""
        count = self._count()
        if count is None:
            return False
        seen = self._seen  # the other thread may begin a new one meanwhile
        gauging = seen is not None and len(seen) < 2
        if seen is not None and gauging:
            seen.append((count, time.perf_counter_ns()))
            gauging = len(seen) < 2
            if not gauging:
                self._emit({})
        # The request is read first: the other thread forgets it as soon as it hears that the plan is made.
        request, member, plan = self._request, self._member, self._member.held
        if plan is None:
            offered = None
            with suppress(RegisterLost, ValueError):  # the agent's thread says so to who wants something
                offered = member.offer(count)
            if offered is not None:
                self._try(member, offered)
                self._emit({})
        elif (outcome := self._outcome(member, count)) is not None:
            if outcome is SwitchOutcome.GO:
                self._carry_out(plan, request)
            self._emit({})
        if self._active.watched and not self._amiss and member.held is None:
            self._look_for_trouble()
        return gauging or member.held is not None

    def _look_for_trouble(self) -> None:
        """What says that it must go off goes off on all ranks; by itself it does no harm meanwhile."""
        for applied, _ in self._active.troubles():
            if applied.bound:
                self._amiss.append(applied.remedy.name)
                self._emit({})

    def _outcome(self, member: RankMember, count: int) -> SwitchOutcome | None:
        try:
            return member.outcome(count)
        except RegisterLost as lost:  # what the others do can't be known: the agent goes, and says so
            raise RegisterLost(f"{lost}; the ranks may differ from here on") from None

    def _try(self, member: RankMember, plan: SwitchPlan) -> None:
        task, torch = self._loop.measuring.task, self._loop.torch
        busy = None if task is None else f"is busy with {task.name}"
        if capturing(torch):
            busy = "is busy with the capture of a CUDA graph"
        elif _read(plan.change).get("do") != "undo":
            watched = job_watches(torch)
            busy = busy or (watched and f"waits: {watched}")
        if busy is not None:
            member.answer(plan, f"rank {self.rank} {busy}", NotReady.BUSY)
        else:
            member.answer(plan, self._why_not(plan))

    def _why_not(self, plan: SwitchPlan) -> str | None:
        """Try the offered change and take it back, before any step runs with it; why it can't be done."""
        change = _read(plan.change)
        if change.get("do") == "undo":
            return None
        try:
            applied = self._apply(change)
        except Refused as refused:
            return f"rank {self.rank}: {refused}"[:200]
        why = None
        if applied.cls not in ANY_CLASS_WITH_ALL:
            why = f"its class is {applied.cls} on rank {self.rank}"
        loss = self._active.undo(applied)
        self._loop.check_again(applied)
        return why if loss is None else f"rank {self.rank}: it could not be reverted: {loss.why}"[:200]

    def _apply(self, change: Mapping[str, object]) -> AppliedRemedy:
        options, allowed = change.get("options"), change.get("allowed")
        self._loop.hooks_off()
        return self._active.apply(
            self._loop.job,
            str(change.get("remedy")),
            options if isinstance(options, dict) else {},
            allowed=allowed if isinstance(allowed, list) else None,
            together=True,
        )

    def _carry_out(self, plan: SwitchPlan, request: SwitchRequest | None) -> None:
        number = request.number if request is not None and request.plan == plan else None
        change = _read(plan.change)
        if change.get("do") == "undo":
            self._revert(str(change.get("remedy")), number)
            return
        try:
            applied = self._apply(change)
        except Refused as refused:  # it could be applied some steps ago: it goes off again, on all ranks
            self._amiss.append(str(change.get("remedy")))
            if number is not None:
                self._emit({"reply": number, "ok": False, "why": str(refused), "code": refused.code.value})
            return
        if number is not None:
            self._own.add(applied.token)
        self._tell(number, {"token": applied.token, "class": applied.cls})

    def _revert(self, name: str, number: int | None) -> None:
        self._loop.hooks_off()
        for applied in reversed(self.on):
            if name not in (EVERYTHING, applied.remedy.name):
                continue
            loss = self._active.undo(applied)
            self._loop.check_again(applied)
            if loss is not None or (number is None and applied.token in self._own):
                gone = NotUndone(
                    token=applied.token, remedy=applied.remedy.name, why="all ranks have reverted it"
                )
                self._emit((loss or gone).event())
            self._own.discard(applied.token)
        self._tell(number, {})

    def _tell(self, number: int | None, what: Mapping[str, object]) -> None:
        if number is not None:
            seq = self._loop.hot.seq
            self._emit({"reply": number, "ok": True, "arm": self._active.arm, "seq": seq, **what})
        else:
            self._emit({"event": "together", "active": [told(applied) for applied in self._active.applied]})


def _read(text: str) -> Mapping[str, object]:
    found = json.loads(text)
    return found if isinstance(found, dict) else {}
