"""One session of the agent: from `hello` to the last hook taken off, on the agent's thread.

In: commands from the link, the bell from the training thread. Out: replies, events. However the
session ends (detach, link lost, an error of ours) it ends through `_leave`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType

from .job_facts import job_facts
from .live_torch.compiled_code import compiles_now
from .live_torch.parameter_device import parameter_device
from .live_torch.torch_types import Device
from .loop import own_cost
from .loop.task_runner import Task
from .loop.train_loop import TrainLoop
from .loop_anatomy import read_anatomy
from .measure import stack_sampler
from .measure.collective_waits import CollectiveTask
from .measure.host_holds import HostSlackTask
from .measure.profiler_window import WindowTask, why_no_window
from .measure.recorded_graphs import RecordedGraphs
from .measure.step_recorder import remove_observer
from .measure.traced_steps import TraceTask
from .phases.sampling_schedule import BUDGET
from .ranks.rank_switching import RankSwitching, refuse_sharded
from .ranks.shared_log import RegisterLost
from .remedies.active_remedies import ActiveRemedies, gone, told
from .remedies.device_headroom import reserved_bytes
from .remedies.registry import RefusalCode, Refused
from .settings_census import SettingsCensus
from .wire.agent_socket import AgentSocket, LinkLost
from .wire.ring_writer import StepRing

TICK_MS = 2000
LOOK_FOR_MARKS_AFTER_S = 2.0
LINK_LOST_PATIENCE_S = 1.0
DETACH_PATIENCE_S = 20.0
HOOKS_PATIENCE_S = 2.0  # hooks alone can be taken off from outside
RANKS_PATIENCE_S = 10.0
MOST_WINDOW_STEPS = 16
DRAINED_S = 0.1
Reply = dict[str, object]
Command = Callable[[Mapping[str, object]], Reply | None]  # the method `_do_` and its name
TASKS = (TraceTask, WindowTask, HostSlackTask, CollectiveTask)
DISTURBING = ("trace", "window", "slack", "collectives", "apply", "together")
RESULTS = frozenset(task.event for task in TASKS)


class AgentSession:
    """State of one session."""

    def __init__(
        self, boot: dict[str, object], torch: ModuleType, link: AgentSocket, active: ActiveRemedies
    ) -> None:
        self._boot = boot
        self._torch = torch
        self._link = link
        self._active = active
        self._pages = StepRing()
        self._outbox: deque[dict[str, object]] = deque()
        self._loop = TrainLoop(torch, self._pages, active, self._emit)
        self._readonly = bool(boot.get("readonly"))
        self._news_told: tuple[int, int | None, bool, bool] | None = None
        self._told: dict[str, dict[str, object]] = {}  # by event: what was sent last
        self._census = SettingsCensus(self._loop)
        self._began = time.monotonic()
        self._ticked = 0.0
        self._news_seen = 0
        self._detached = False
        self._ranks: RankSwitching | None = None  # once this rank has found the others
        self._stays: list[str] = []  # what could not be reverted on all ranks at one step

    def run(self) -> None:
        """Until detach, a lost link or an error of ours; leaves nothing. Raises LinkLost before `hello`."""
        greeted = False
        try:
            self._hello()
            greeted = True
            self._loop.put_on(self._forked)
            self._serve()
        except LinkLost:
            if not greeted:
                raise
        except Exception as error:  # noqa: BLE001
            self._loop.broken = self._loop.broken or f"{type(error).__name__}: {error}"
        finally:
            self._pages.close_fd()
            if not self._loop.gone:
                self._leave(keep=False, patience_s=LINK_LOST_PATIENCE_S)
            if self._loop.broken is not None:
                with suppress(LinkLost):
                    self._flush()
                    self._link.send({"event": "removed", "why": self._loop.broken})
            self._link.close()
            self._pages.release()  # `busy` is off and the door closed: nothing writes any more
            if self._ranks is not None:
                self._ranks.close()
            remove_observer(self._torch)

    def _forked(self) -> None:
        """In a forked child: nothing of ours is left there."""
        self._link.close()
        if self._ranks is not None:
            self._ranks.forked()
        self._pages.close_fd()
        if not self._loop.hot.busy:  # else it was forked inside of our work, which may still write there
            self._pages.release()

    def _hello(self) -> None:
        facts = self._told["facts"] = self._facts()
        hello: dict[str, object] = {"event": "hello", "ring_fd": True, "facts": facts}
        self._link.send(hello, self._pages.fd)
        self._pages.close_fd()

    def _serve(self) -> None:
        plain_ns, sampled_ns = own_cost.calibrate(self._torch)
        self._loop.hot.hook_ns = own_cost.COLD * plain_ns
        self._loop.bursts.cost_ns = own_cost.COLD * sampled_ns
        while not self._detached:
            self._flush()
            if self._loop.broken is not None:
                return
            if time.monotonic() - self._ticked > TICK_MS / 2000 or self._loop.news != self._news_seen:
                self._tick()
            look_ms = TICK_MS if self._ranks is None else self._ranks.pump()
            if not self._readonly:
                if self._active.look_at_memory():
                    self._loop.hot.poke()
                look_ms = min(look_ms, self._active.memory.every_ms)
            if self._link.wait(look_ms) and not self._outbox:
                self._obey(self._link.receive())

    def _tick(self) -> None:
        loop = self._loop
        self._ticked = time.monotonic()
        self._news_seen = loop.news
        if loop.hot.steps == 0 and time.monotonic() - self._began > LOOK_FOR_MARKS_AFTER_S:
            loop.look_for_marks()
        self._tell("facts", self._facts())  # it may have been entered as it began
        news = (loop.news, loop.loader.workers, loop.sampled_steps > 0, loop.quiet.learnt)
        if loop.steps.pattern is not None and news != self._news_told:
            try:
                anatomy = read_anatomy(loop)
            except RuntimeError:  # training changed a dict under our eyes: next time
                return
            self._news_told = news
            self._tell("anatomy", anatomy)
        with suppress(RuntimeError):  # training changed a dict under our eyes: next time
            census = self._census.facts()
            if census is not None:
                self._tell("census", census)
        self._tell_cost()

    def _look_at_device(self) -> Device | None:
        """Where the parameters are now; the loop stamps its steps there, while it is asked to."""
        try:
            found = parameter_device(self._loop.job)
        except RuntimeError:  # training changed a dict under our eyes: next time
            return self._loop.stamps.device
        if found is None and self._loop.steps.source == "replay":  # what it trains, nobody has shown
            found = self._torch.device("cuda")
        on_device = found is not None and found.type != "cpu"
        self._loop.stamps.device = found if on_device else None
        return found

    def _facts(self) -> dict[str, object]:
        loop = self._loop
        return job_facts(self._torch, self._boot, loop.train_tid, loop.check, self._look_at_device())

    def _tell(self, event: str, payload: dict[str, object]) -> None:
        """Send it, where it is not what was sent last."""
        if payload != self._told.get(event):
            self._told[event] = payload
            self._link.send({"event": event, event: payload})

    def _tell_cost(self) -> None:
        if self._loop.hot.steps:
            self._tell("cost", own_cost.cost_of(self._loop))

    def _emit(self, event: dict[str, object]) -> None:
        """From any thread: an event to send, or {} to have the agent's thread look around."""
        if event:
            self._outbox.append(event)
        self._link.ring_bell()

    def _flush(self) -> None:
        while self._outbox:
            if _is_result(self._outbox[0]) and self._loop.measuring.task is not None:
                return  # its task is just ending, and rings once it has: what is asked next finds none
            event = self._outbox.popleft()
            finish, began_ns = event.get("finish"), time.thread_time_ns()
            found, fd = finish() if callable(finish) else (event, None)
            if callable(finish):  # torch holds the interpreter meanwhile
                self._loop.measuring.spent_ns += time.thread_time_ns() - began_ns
            try:
                if _is_result(found):
                    self._tell_cost()  # first: a client may leave with the result
                self._link.send(found, fd)
            finally:
                if fd is not None:
                    os.close(fd)

    def _obey(self, command: Mapping[str, object]) -> None:
        number = command.get("id")
        name = command.get("do")
        do: Command | None = getattr(self, f"_do_{name}", None)
        try:
            if self._readonly and name in DISTURBING:
                raise Refused("the session is read-only")
            reply = do(command) if do is not None else {"ok": False, "why": f"unknown command {name!r}"}
        except Refused as refused:
            reply = {"ok": False, "why": str(refused), "code": refused.code.value}
        except (TypeError, ValueError, KeyError) as error:
            reply = {"ok": False, "why": f"bad field in {name!r}: {error}"}
        if reply is not None:
            self._link.send({"reply": number if isinstance(number, int) else None, "ok": True, **reply})

    def _do_watch(self, command: Mapping[str, object]) -> Reply:
        if command.get("as_usual"):
            self._loop.post(lambda: self._loop.bursts.as_usual(self._loop.hot.seq + 1))
            return {}
        every = _whole(command, "bursts_every", 64)
        steps = _whole(command, "burst_steps", 4)
        budget = _whole(command, "cost_ppm", round(BUDGET * 1e6)) / 1e6
        self._loop.post(lambda: self._loop.bursts.ask(every, steps, self._loop.hot.seq + 1, budget))
        return {}

    def _do_stamp(self, command: Mapping[str, object]) -> Reply:
        """Stamp so many steps of every so many on the device, if there is one."""
        every, steps = _whole(command, "every", 1), _whole(command, "steps", 1)
        stamps, hot = self._loop.stamps, self._loop.hot
        self._tell("facts", self._facts())
        stamps.ask(every, steps, hot.steps + 1)
        hot.poke()
        return {}

    def _do_drain(self, command: Mapping[str, object]) -> None:
        """Let the device work its queue off at the next boundary; then stand still for a moment.

        For who stops this process at once, and for a replay on its device: nothing more is queued meanwhile.
        """
        number = command.get("id")

        def drain() -> None:
            drained = self._loop.stamps.drain()
            self._emit({"reply": number, "ok": True, "drained": drained})
            until_s = time.monotonic() + (DRAINED_S if drained else 0.0)
            while time.monotonic() < until_s and self._loop.hot.live:
                time.sleep(0.001)

        self._loop.post(drain)

    def _do_trace(self, command: Mapping[str, object]) -> Reply:
        steps, sweep = _whole(command, "steps", 6), command.get("sweep") is not None
        probe = command.get("probe") is not False
        device = {name: command[name] for name in ("device", "step_ns", "free_bytes") if name in command}
        return self._begin(TraceTask(self._loop, steps, self._emit, probe=probe, sweep=sweep, device=device))

    def _do_window(self, command: Mapping[str, object]) -> Reply:
        steps, shapes = _whole(command, "steps", 4), command.get("shapes") is True
        why = why_no_window(self._torch, asked=command.get("asked") is True)
        if why is not None:
            raise Refused(why)
        return self._begin(WindowTask(self._loop, min(steps, MOST_WINDOW_STEPS), shapes, self._emit))

    def _do_slack(self, command: Mapping[str, object]) -> Reply:
        return self._begin(HostSlackTask(self._loop, self._emit))

    def _do_collectives(self, command: Mapping[str, object]) -> Reply:
        return self._begin(CollectiveTask(self._loop, _whole(command, "steps", 8), self._emit))

    def _begin(self, task: Task) -> Reply:
        if self._loop.measuring.task is not None:
            raise Refused(f"busy with {self._loop.measuring.task.name}")
        if self._ranks is not None and self._ranks.holds:
            raise Refused("busy with a change of all ranks")
        self._loop.begin_task(task)
        return {}

    def _do_frames(self, command: Mapping[str, object]) -> Reply | None:
        for_ms = _whole(command, "for_ms", 1500)
        every_ms = _whole(command, "every_ms", 10)
        self._link.send({"reply": command.get("id"), "ok": True})
        hot, usual = self._loop.hot, command.get("usual_ns")
        owner = hot.owner
        graphs = RecordedGraphs(self._loop)

        def ended() -> bool:
            graphs.keep_up()
            return self._link.lost()

        with graphs.followed():
            sampled = stack_sampler.sample(
                self._torch,
                owner or threading.main_thread().ident or 0,  # no step has shown the training thread
                self._loop.loader,
                for_s=min(for_ms, 10_000) / 1000,
                every_s=max(every_ms, 1) / 1000,
                tid=self._loop.train_tid,
                ended=ended,
                running_ns=hot.running_ns,
                usual_ns=usual if type(usual) is int else None,
                also=graphs.sites,
            )
        self._link.send({"event": "frames", "frames": sampled})
        return None

    def _do_apply(self, command: Mapping[str, object]) -> None:
        name = str(command["remedy"])
        options = command.get("options") or {}
        if not isinstance(options, dict):
            raise TypeError("options is an object")
        allowed = command.get("allowed")
        if allowed is not None and not isinstance(allowed, list):
            raise TypeError("allowed is a list of classes")
        number, prepare = command.get("id"), command.get("prepare") is True
        if self._ranks is not None:
            if prepare:
                raise Refused("ranks compile at one step", RefusalCode.NOT_BESIDE)
            change = {"do": "apply", "remedy": name, "options": options, "allowed": allowed}
            self._ranks.request(number if isinstance(number, int) else None, change)
            return

        def apply() -> None:
            try:
                applied = self._loop.apply(name, options, allowed, prepare=prepare)
            except Refused as refused:
                why, code = str(refused), refused.code.value
                self._emit({"reply": number, "ok": False, "why": why, "code": code})
                return
            done = {"ok": True, "arm": self._active.arm, "seq": self._loop.hot.seq}
            self._emit({"reply": number, **done, "token": applied.token, "class": applied.remedy.cls})

        self._loop.post(apply)

    def _do_undo(self, command: Mapping[str, object]) -> None:
        applied = self._active.find(command["token"])
        self._active.may_go(self._loop.job, applied)
        number = command.get("id")
        if self._ranks is not None and applied.together:
            change = {"do": "undo", "remedy": applied.remedy.name}
            self._ranks.request(number if isinstance(number, int) else None, change)
            return

        def undo() -> None:
            if applied not in self._active.applied:  # another undo of this step, or it undid itself
                self._emit({"reply": number, "ok": False, "why": gone(applied.token)})
                return
            peaks = {
                "host_peak_bytes": self._active.memory.peak_bytes,
                "device_peak_bytes": reserved_bytes(self._loop.job),
            }
            loss = self._loop.undo(applied)
            if loss is not None:
                self._emit(applied.lost(loss))
                self._emit({"reply": number, "ok": False, "why": f"undo failed: {loss}"})
                return
            done = {"ok": True, "arm": self._active.arm, "seq": self._loop.hot.seq, **peaks}
            self._emit({"reply": number, **done})

        self._loop.post(undo)

    def _do_together(self, command: Mapping[str, object]) -> Reply:
        """From now on remedies go on and off on all ranks, which share the log at this address, or ours."""
        address = str(command.get("log") or "")
        try:
            if self._ranks is None:
                refuse_sharded(self._loop.job)
                self._ranks = RankSwitching.meet(self._loop, address, self._emit)
                self._loop.each_boundary = self._ranks.at_boundary
            else:
                self._ranks.meet_anew(address)
            return {"rank": self._ranks.rank, "ranks": self._ranks.ranks, "log": self._ranks.address}
        except RegisterLost as lost:
            raise Refused(str(lost)) from None

    def _do_facts(self, command: Mapping[str, object]) -> Reply:
        active = [told(applied) for applied in self._active.applied]
        return {"facts": self._facts(), "anatomy": self._told.get("anatomy"), "active": active}

    def _do_detach(self, command: Mapping[str, object]) -> Reply:
        left = self._leave(keep=bool(command.get("keep")), patience_s=DETACH_PATIENCE_S)
        self._detached = True
        with suppress(LinkLost):
            self._flush()
        return {"left": left, "stays": self._stays}

    def _leave(self, *, keep: bool, patience_s: float) -> list[str]:
        """Everything off; what could not be taken off."""
        loop = self._loop
        if self._ranks is not None:
            self._ranks.leave(keep=keep, patience_s=max(patience_s, RANKS_PATIENCE_S))
            self._stays = [] if keep else [applied.remedy.name for applied in self._ranks.on if applied.bound]
        of_remedies = self._active.kept or (self._active.ours and not keep)
        needs_boundary = bool(of_remedies) or loop.measuring.task is not None
        deadline = time.monotonic() + (patience_s if needs_boundary else min(patience_s, HOOKS_PATIENCE_S))
        if (needs_boundary or loop.hooks.on) and loop.hot.live:
            loop.task_ends()
            loop.post(lambda: loop.take_down(keep=keep, at_boundary=True))
            compiles = False
            while not loop.gone and loop.hot.live and time.monotonic() < deadline:
                loop.hot.poke()
                time.sleep(0.002)
                if not compiles and compiles_now(loop.hot.owner):
                    compiles = True
                    with suppress(LinkLost):
                        self._link.send({"event": "awaits", "why": "the job compiles (torch.compile)"})
        loop.close_door()
        while loop.hot.busy and not loop.gone:
            time.sleep(0.001)
        waiting: list[str] = []
        if not loop.gone:
            waiting = loop.take_down(keep=keep, at_boundary=False)
        return sorted({*loop.left, *(f"{name} (undone at the next step)" for name in waiting)})


def _is_result(event: Mapping[str, object]) -> bool:
    """Whether it is the last that a measuring task has to say."""
    return event.get("event") in RESULTS or "finish" in event


def _whole(command: Mapping[str, object], name: str, default: int) -> int:
    value = command.get(name, default)
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} is a whole number >= 1")
    return value
