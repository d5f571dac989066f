"""The session of one job: a state machine from attach to detach.

In: ring records, host samples, events and replies of the agent, requests of clients. Out: verdicts,
snapshots, commands. Never waits and knows no sockets: the event loop calls it, on one thread.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from autobrrr.agent.loop.device_stamps import STAMP_EACH, STAMP_SOME
from autobrrr.agent.phases.sampling_schedule import EVERY_STEP
from autobrrr.agent.remedies.registry import RefusalCode
from autobrrr.diagnosis.verdict.judge import Judgement, judge
from autobrrr.machine.host_sampler import HostDevice
from autobrrr.machine.processors import own_cpu_ns
from autobrrr.readable import readable
from autobrrr.records import (
    Attach,
    Diagnosis,
    JobFacts,
    ProfilerWindow,
    RanksCompared,
    Reverted,
    Trial,
    Tuning,
    Verdict,
    verdict_line,
)
from autobrrr.records.events import entry_of
from autobrrr.records.record_base import as_record
from autobrrr.records.wire_answers import ActivityLine, SessionEnding
from autobrrr.sidecar.process.session_options import Probing, SessionOptions, State
from autobrrr.sidecar.process.step_replayer import Replay, StepReplay
from autobrrr.sidecar.session.collected import Collected
from autobrrr.sidecar.session.measurement_sequence import MeasurementSequence, OnCompared
from autobrrr.sidecar.session.remedy_switch import RemedySwitch, code_of
from autobrrr.sidecar.session.ring_reader import NoRing, RingReader
from autobrrr.sidecar.session.session_log import SessionLog
from autobrrr.sidecar.session.snapshot import snapshot
from autobrrr.sidecar.session.window_reader import Read
from autobrrr.sidecar.sockets.socket_frames import LINK_LOST, AgentLink, Heard, content, said

SECOND_NS = 1_000_000_000
JUDGE_EVERY_NS = 2 * SECOND_NS
REST = 400  # times the CPU time of a judgment, at least, between two of them once all is measured
DETACH_NS = 15 * SECOND_NS
DETACH_STEPS = 3
MOST_DETACH_NS = 240 * SECOND_NS  # whatever the job says of its steps
NO_GRAPHS = "the job has shown no graphs"
LINK_GRACE_NS = SECOND_NS  # a job that ends closes its link a moment before it is gone

OnDetached = Callable[[SessionEnding], None]


class Session:
    """One job.

    Args:
        alive: Whether the job's process is still there.
        cores: CPUs that the job may run on.
        ranks_here: So many ranks share them.
        oom_kills: How often the kernel has killed a process of the job's memory group so far.

    Attributes:
        say: Gets every line of narration.
        read_window: Reads the trace of a profiler window, and hands the window back later.
        replay: Replays a recorded step, and hands the probe back later.
        watch_thread: Takes the thread that trains, as the target sees it, once a step has shown it.
    """

    def __init__(
        self,
        pid: int,
        options: SessionOptions,
        *,
        device: HostDevice,
        journal: SessionLog,
        alive: Callable[[], bool],
        clock_ns: Callable[[], int] = time.monotonic_ns,
        own_cpu_ns: Callable[[], int] = own_cpu_ns,
        cores: int | None = None,
        ranks_here: int = 1,
        oom_kills: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.findings = Collected(pid, options, cores, ranks_here)
        self.ending: SessionEnding | None = None
        self.active = RemedySwitch(self.refusal, self._switched)
        self.say: Callable[[ActivityLine], None] = lambda line: None
        self.read_window: Read | None = None
        self.replay: Replay | None = None
        self.stop_replay: Callable[[], None] = lambda: None
        self._graphs: bytes | str = NO_GRAPHS
        self.watch_thread: Callable[[int], object] = lambda tid: None
        self._sees_each_step = False  # what it holds, while the tuner compares
        self._stamping: Mapping[str, int] | None = None  # as the agent was last asked to
        self.course = MeasurementSequence(self.findings, clock_ns)
        self._state: State | None = None  # as the course
        self._agent: AgentLink | None = None
        self._device, self._journal, self._alive = device, journal, alive
        self._clock_ns, self.own_cpu_ns = clock_ns, own_cpu_ns
        self._oom_kills, self._oom_kills_before = oom_kills, oom_kills()
        self._began_ns = self._since_ns = clock_ns()
        self.judgement: Judgement = judge(self.findings.measurements(0))
        self._judge_at_ns, self._judged_steps = self._began_ns, self.findings.window.standing
        self._link_lost_ns: int | None = None
        self._link_lost_why = LINK_LOST
        self._odd_events: set[str] = set()
        self._stale = False  # a fact has come in that was not judged yet
        self._activity = ""  # in a state that the course does not set
        self.compared: RanksCompared | None = None  # the ranks of the job, as it is now
        self._changed_since = False  # its steps were compared last
        self._on_detached: list[OnDetached] = []
        self._keeps = False  # what is on stays on after the detach
        self._on_before: list[str] = []  # remedies, as the tuning began
        self.trials: dict[tuple[str, str], Trial] = {}  # the latest, by remedy and options
        self._awaited: str | None = None  # what keeps the job from the step that ends a detach

    @property
    def state(self) -> State:
        return self._state or self.course.state

    @property
    def activity(self) -> str:
        return self.course.activity if self._state is None else self._activity

    @property
    def decided(self) -> bool:
        """Whether there is something to say: a regime, or everything has been measured."""
        measured = self.findings.options.outside or self.course.finished
        return measured or self.judgement.verdict.regime != "unknown"

    @property
    def remedies_on(self) -> list[str]:
        """What is on, also where a comparison has it off for a block."""
        before = self._on_before if self._state is State.TUNING else []
        return list(dict.fromkeys([*before, *self.active.names]))

    # What happens to it

    def entered(self, agent: AgentLink, ring: RingReader, facts: JobFacts, attach: Attach) -> None:
        """The agent is in."""
        self._agent = self.active.agent = agent
        self.findings.ring = ring
        self.findings.know(facts)
        self.findings.attach = attach
        self._journal.write("attached", {"facts": facts, "attach": attach})
        self.course.begin(agent)
        agent.command("facts", self._took_facts)

    def entered_outside(self) -> None:
        """No agent: only what the machine shows."""
        self._journal.write("attached", {"attach": self.findings.attach})
        self.course.state, self.course.activity = State.JUDGED, "watching from outside"

    def tick(self) -> None:
        """One look at the ring, the machine and the clock."""
        now_ns = self._clock_ns()
        if self._state is State.ENDED:
            return
        if not self._alive():  # asked each time: its children may hold the agent's link
            self.job_ended()
            return
        self._look(now_ns)
        if self.ending is not None:  # that look ended it
            return
        self._mind_clock()
        if self._link_lost_ns is not None:
            self._settle_lost_link(now_ns)
        elif self._state is State.DETACHING:
            self._detaching(now_ns)
        elif self._state is None and self._agent is not None:
            before = self.course.state
            self.course.step(self.judgement.verdict)
            self._stale = self._stale or self.course.state is not before
        self._judge_if_due(now_ns)
        self._journal.look(now_ns - self._began_ns, self.state, self.snapshot, self.findings)

    def on_event(self, event: Heard) -> None:
        """One event of the agent."""
        name, told, fd = str(event.get("event")), event.get("recorded"), event.get("fd")
        file = fd if isinstance(fd, int) else None
        try:
            if name == "window" and self.read_window is not None:
                self.read_window(as_record(event.get("window"), ProfilerWindow), file, self._took_window)
                return
            if name == "recorded" and self.replay is not None:
                self.findings.replaying = True
                if self._state is State.TUNING:  # what is compared must not share its CPUs with us
                    told = {"why": "a tuning began"}
                self.replay(told if isinstance(told, dict) else {}, file, self._took_replay)
                return
            if name == "graphs":
                self._graphs = str(event.get("why")) if file is None else content(file)
                return
            measured = self.findings.take(name, event)
        except msgspec.ValidationError as error:
            if name not in self._odd_events:  # once is enough
                self._odd_events.add(name)
                self.note(f"the agent's event {name} can't be read: {error}")
            return
        if measured:
            if name == "anatomy" and self.findings.anatomy is not None and self.findings.anatomy.train_tid:
                self.watch_thread(self.findings.anatomy.train_tid)
            self._stale = self._stale or name != "cost"
            if name not in ("cost", "tracing"):  # come all the time, and every snapshot shows them
                self._journal.write(name, {name: event.get(name)})
        elif name == "remedy_lost":
            text = self.active.lose(event)
            if text is not None:
                self.note(text)
                self._look_at_changed_job()
        elif name == "together":
            self.active.found(event.get("active"))
            on = ", ".join(self.active.names) or "nothing"
            self._switched(f"another rank has switched all ranks; applied: {on}")
            self.course.hold()  # it may be tuning them: a rank that measures can't switch
        elif name == "awaits" and self._state is State.DETACHING:
            self._awaited = said(event, "why")
            self._activity = f"detaching: {self._awaited}"
        elif name == "removed":
            self._end(SessionEnding(kind="removed", why=f"the agent took itself out: {said(event, 'why')}"))

    def take_graphs(self) -> bytes | str:
        """What a compiling remedy has shown last of what it would compile, or why it did not; once."""
        found, self._graphs = self._graphs, NO_GRAPHS
        return found

    def link_lost(self, why: str = LINK_LOST) -> None:
        """The agent's end of the link is gone, or was cut off."""
        if self._link_lost_ns is None:
            self._link_lost_ns, self._link_lost_why = self._clock_ns(), why

    def job_ended(self) -> None:
        """The job's process is gone."""
        under, now = tuple(self.active.names), self._oom_kills()
        killed = None if now is None or self._oom_kills_before is None else now > self._oom_kills_before
        why = f"process {self.findings.pid} ended"
        if under:
            why += f" while {', '.join(under)} {'was' if len(under) == 1 else 'were'} on"
        if killed:
            why += ": the kernel killed one of its processes because memory was full (oom_kill)"
        self._end(SessionEnding(kind="job ended", why=why, under=under, oom_kill=killed))

    def fail(self, error: Exception) -> None:
        """Nothing can be made of what was measured: the session ends, and what it was is said."""
        why = f"the session failed: {type(error).__name__}: {readable(str(error))}"
        self._end(SessionEnding(kind="failed", why=why))

    # What clients request

    def measure_again(self, probing: Probing | None = None) -> None:
        """Trace and probe anew, or go on with what is under way."""
        if self._state is None and self._agent is not None:
            self.course.again(probing)
            self._stale = True

    def _look_at_changed_job(self) -> None:
        self.compared, self._changed_since = None, True
        if self._state is None:
            self.course.changed()
            self._stale = True

    @property
    def busy(self) -> str | None:
        """Why nothing may be measured on request now; None where it may."""
        return "the session is tuning" if self._state is State.TUNING else self.refusal("measure")

    def compare(self, for_ns: int, on_done: OnCompared) -> str | None:
        """Time steps while all other ranks do so too; a sentence where that can't be."""
        if self.busy is not None:
            return self.busy
        self._changed_since = False
        return None if self.course.compare(for_ns, on_done) else "another comparison is under way"

    def take_comparison(self, found: RanksCompared) -> None:
        """What a client has made of the steps of all ranks; it holds until the job is changed."""
        if not self._changed_since:
            self.compared = found

    def begin_tuning(self) -> str | None:
        """Hand the job to the tuner; a sentence where that can't be."""
        refusal = self.refusal("tune")
        if refusal is None:
            self._state, self._activity = State.TUNING, "tuning"
            self.stop_replay()
            self._on_before = self.active.names
            self._mind_clock()
            if self._agent is not None and self.findings.window.lengths_vary:
                self._sees_each_step = True
                self._agent.command("watch", lambda reply: None, **EVERY_STEP)
        return refusal

    def _mind_clock(self) -> None:
        """On a device that works asynchronously: have it stamp steps, each one while they are compared."""
        wanted = STAMP_EACH if self._state is State.TUNING else STAMP_SOME
        if self._agent is None or not self.findings.is_asynchronous or self._stamping == wanted:
            return
        self._stamping = wanted
        self._agent.command("stamp", lambda reply: None, **wanted)

    def narrate(self, text: str) -> None:
        """The tuner says what it is doing."""
        self._activity = text

    def record(self, result: Trial | Tuning | Reverted) -> None:
        """The tuner has a result."""
        if isinstance(result, Trial):
            self.trials[result.remedy, str(result.options)] = result
        self._journal.write(entry_of(result), result)

    def end_tuning(self) -> None:
        """The tuner is through. The verdict stands for now: tracing would slow down what was just tuned."""
        if self._state is State.TUNING:
            self._state = None
            changed = self.active.names != self._on_before
            self.course.tuned(changed=changed)
            if changed:
                self.compared, self._changed_since = None, True
            if self._agent is not None and self._sees_each_step:
                self._sees_each_step = False
                self._agent.command("watch", lambda reply: None, as_usual=True)
            self.course.go_on()

    def detach(self, keep: bool = False, on_done: OnDetached = lambda ending: None) -> None:
        """Take everything off, then end; `keep` leaves the remedies on."""
        if self.ending is not None:
            on_done(self.ending)
            return
        self._on_detached.append(on_done)
        if self._state is State.DETACHING:
            return
        self._state, self._since_ns, self._activity = State.DETACHING, self._clock_ns(), "detaching"
        self._keeps = keep
        if self._agent is None:
            self._end(SessionEnding(kind="detached", why="nothing was in the job"))
        else:
            self._agent.command("detach", self._took_detach, keep=keep)

    @property
    def elapsed_ns(self) -> int:
        """Since it began."""
        return self._clock_ns() - self._began_ns

    @property
    def steps(self) -> int | None:
        """Steps since attach; None where no step can be seen."""
        ring = self.findings.ring
        return None if ring is None else ring.steps

    def snapshot(self) -> Diagnosis:
        """The session at this moment."""
        return snapshot(self)

    # Its states, and how it leaves them

    def _detaching(self, now_ns: int) -> None:
        steps_ns = DETACH_STEPS * self.findings.window.longest_ns
        if now_ns - self._since_ns > min(max(DETACH_NS, steps_ns), MOST_DETACH_NS):
            why = self._awaited or "the agent did not answer"
            self._end(SessionEnding(kind="detached", why=why, left=("the agent",)))

    def _settle_lost_link(self, now_ns: int) -> None:
        """A job that ends, an agent that leaves after a detach, or a link that broke."""
        if self._state is State.DETACHING:
            self._end(SessionEnding(kind="detached", why="the agent left"))
        elif self._link_lost_ns is not None and now_ns - self._link_lost_ns > LINK_GRACE_NS:
            self._end(SessionEnding(kind="link lost", why=self._link_lost_why))

    def _took_facts(self, reply: Heard) -> None:
        if reply.get("ok") is not True:
            return
        self.active.found(reply.get("active"))
        if isinstance(reply.get("facts"), dict):
            self.on_event(Heard({"event": "facts", "facts": reply["facts"]}))
        if isinstance(reply.get("anatomy"), dict) and self.findings.anatomy is None:
            self.on_event(Heard({"event": "anatomy", "anatomy": reply["anatomy"]}))

    def _took_window(self, window: ProfilerWindow) -> None:
        if self.state is State.ENDED:
            return
        self.findings.profile = window = self.findings.by_device(window)
        self.findings.took_memory()
        self._stale = True
        self._journal.write("window", window)

    def _took_replay(self, found: StepReplay) -> None:
        self.findings.replaying = found.more
        if self.state is State.ENDED:
            return
        findings, probe = self.findings, found.probe
        if found.work and findings.traced is not None and findings.traced.status == "ok":
            findings.traced = msgspec.structs.replace(findings.traced, work=found.work)
            self._journal.write("traced", {"traced": findings.traced})
        if probe is not None and self.state is State.SWEEPING:
            probe = msgspec.structs.replace(probe, sweep="batch")
        elif probe is not None and probe.status != "ok" and findings.probe is not None:
            probe = None  # of a later trace: it takes no answer away
        if probe is not None and (probe.sweep is not None or findings.options.probing != "off"):
            findings.take("probed", {"probed": probe})
            self._journal.write("probed", {"probed": probe})
        self._stale = True

    def _took_detach(self, reply: Heard) -> None:
        if reply.get("ok") is not True:
            if self._link_lost_ns is None and code_of(reply) is RefusalCode.LINK_LOST:
                self.link_lost()
                return
            self._end(SessionEnding(kind="detached", why=said(reply, "why"), left=("the agent",)))
            return
        left, stays = _names(reply.get("left")), _names(reply.get("stays"))
        why = self._awaited if left and self._awaited else "detached"
        self._end(SessionEnding(kind="detached", why=why, left=left, stays=stays))

    def _end(self, ending: SessionEnding) -> None:
        if self.ending is not None:
            return
        try:
            self._look(self._clock_ns())
        except Exception:  # noqa: BLE001 - it may end because looks fail
            traceback.print_exc()
        if self.ending is not None:  # the last look ended it
            return
        self._judge_if_due(self._clock_ns())
        if not self._keeps and "the agent" not in ending.left:
            self.active.only((*ending.left, *ending.stays))
        on = tuple(self.active.names)
        lost = self._journal.lost_lines
        self.ending = ending = msgspec.structs.replace(ending, on=on, decided=self.decided, lost_lines=lost)
        self._state = State.ENDED
        self.findings.turn.give()
        self._activity = ending.kind
        self._journal.write("ended", ending)
        self._journal.write("history", self.findings.history.history(self.findings.window.step_ns))
        self._journal.write("snapshot", self.snapshot())
        waiting, self._on_detached = self._on_detached, []
        for on_done in waiting:
            on_done(ending)

    def refusal(self, do: str) -> str | None:
        """Why the job can't be asked for what does something to it, by this name; None where it can."""
        if do == "undo":
            return LINK_LOST if self._state is State.ENDED else None
        if self._state in (State.DETACHING, State.ENDED):
            return f"the session is {self.state.value}"
        if self.findings.options.outside:
            return "the session watches from outside only"
        return "the session is read-only" if self.findings.options.readonly else None

    def _switched(self, text: str) -> None:
        self.note(text, "switch")
        self._look_at_changed_job()

    def _look(self, now_ns: int) -> None:
        try:
            self.findings.look(now_ns, self._device)
        except NoRing as error:
            self._end(SessionEnding(kind="removed", why=error.message))
        self.findings.follow_window()

    def _judge(self, now_ns: int) -> None:
        self._stale, began_ns = False, self.own_cpu_ns()
        self._judged_steps = self.findings.window.standing
        before = self.judgement.verdict
        try:
            self.judgement = judge(self.findings.measurements(now_ns - self._began_ns))
        except Exception as error:  # noqa: BLE001 - a fault in judging must not end the session
            traceback.print_exc()
            self.note(f"the verdict stays as it is, judging failed: {type(error).__name__}: {error}")
        rest_ns = REST * (self.own_cpu_ns() - began_ns) if self.course.state is State.JUDGED else 0
        self._judge_at_ns = now_ns + max(JUDGE_EVERY_NS, rest_ns)
        verdict = self.judgement.verdict
        if _said(verdict) != _said(before):
            verdict = msgspec.structs.replace(verdict, advice=self.snapshot().advice)
            self._journal.write("verdict", verdict)
            self.say(ActivityLine(text=verdict_line(verdict)))

    def _judge_if_due(self, now_ns: int) -> None:
        due = self._state is None and (self._stale or now_ns >= self._judge_at_ns)
        # In any state: no snapshot says that there are no steps beside figures of some.
        if (due or self.findings.window.standing != self._judged_steps) and not self._verdict_stands:
            self._judge(now_ns)

    @property
    def _verdict_stands(self) -> bool:
        """While the job is tuned, and until it is measured anew, what was known of it is not judged again."""
        tuned = self._state is State.TUNING or self.course.shows_job_before
        return tuned and self.judgement.verdict.limit != "unknown"

    def note(self, text: str, about: Literal["switch"] | None = None) -> None:
        """A line for all who listen; of a switch, with all remedies that are on."""
        line = ActivityLine(text=text, about=about, active=self.active.names if about else None)
        self._journal.write("note", line)
        self.say(line)


def _names(told: object) -> tuple[str, ...]:
    return tuple(name for name in told if isinstance(name, str)) if isinstance(told, list) else ()


def _said(verdict: Verdict) -> tuple[str, ...]:
    """What of a verdict is news where it changes."""
    return verdict.regime, verdict.confidence, verdict.limit, verdict.limit_confidence
