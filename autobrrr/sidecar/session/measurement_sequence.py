"""The course of measurement: sample stacks, trace or profile, probe, then watch; one row a measurement.

In: the findings so far and the clock. Out: commands to the agent, one at a time. A refusal, or an
answer that does not come, becomes an abstention with its reason, and the course goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from autobrrr.agent.loop.device_stamps import STAMP_EACH, STAMP_SOME
from autobrrr.diagnosis.thresholds import BUSY_AT
from autobrrr.records import (
    CollectiveWaits,
    FrameSamples,
    HostSlack,
    ProfilerWindow,
    Record,
    ShadowProbe,
    TracedSteps,
    Verdict,
)
from autobrrr.sidecar.process.rank_lock import RankLock, Waiting
from autobrrr.sidecar.process.session_options import Probing, Sweep
from autobrrr.sidecar.session.collected import Collected
from autobrrr.sidecar.session.session_states import AWAITS_TURN, State
from autobrrr.sidecar.sockets.agent_link import AgentPort, Heard

SECOND_NS = 1_000_000_000
FEW_STEPS = 4  # before the first traced one
ANATOMY_NS = 20 * SECOND_NS  # once steps come
STAGE_NS, STAGE_STEPS = 30 * SECOND_NS, 60  # after either, an answer is no longer waited for
LONG_STEP_NS = 200_000_000  # from here on so many steps would keep the first verdict waiting
TRACED_STEPS, TRACED_LONG_STEPS = 6, 3
WINDOW_STEPS, SHAPED_STEPS = 4, 2
TIMED_STEPS, TIMED_LONG_STEPS = 16, 8
NOTICEABLE = 0.15  # of the step: shapes of products are worth a second window
FRAMES_MS, MOST_FRAMES_MS = 1500, 6000
FRAMES_STEPS = 16  # at least: what a step waits for comes in bursts
FRAMES_EVERY_MS = 10
LONGER, LONG_STEPS_NS = 2.5, 1_000_000_000  # some steps so many times the usual one: looked at for longer
FIRST_STEP_NS, FIRST_STEP_FRAMES_MS = 6 * SECOND_NS, 4000  # without a step: where the thread stands
RETRACE_NS = (5 * SECOND_NS, 15 * SECOND_NS, 60 * SECOND_NS, 300 * SECOND_NS)
WINDOW_AGAIN_NS = RETRACE_NS[:2]  # after an unlucky window: each one holds training up
STILL_BUSY_NS = 30 * SECOND_NS  # a trace that others disturbed, while they go on
QUIET_LOOKS = 3  # at the machine, one after the other
HOLD_NS = 60 * SECOND_NS  # for the other ranks to be there
MOST_COMPARED_STEPS = 400
DRIFT, DRIFT_NS = 0.4, 60 * SECOND_NS  # the median step has moved so far, for so long, since it was traced

OnCompared = Callable[[CollectiveWaits], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsWanted:
    """To be timed for so long, while all other ranks of the job time theirs."""

    for_ns: int
    on_done: OnCompared


class MeasurementSequence:
    """Drives one agent through the measurements.

    Args:
        turn: Of the ranks of one job; one of them is measured at a time.
    """

    def __init__(self, findings: Collected, agent: AgentPort, now_ns: int, turn: RankLock) -> None:
        self.state = State.WATCHING
        self.activity = "waiting for the first steps"
        self.finished = False  # everything that was to be measured once has been
        self._findings = findings
        self._agent = agent
        self._turn = turn
        self._waiting = Waiting()
        self._since_ns = now_ns
        self._first_step_ns: int | None = None
        self._before: Record | None = None  # what was known of it when the measurement began
        self._retraces = 0
        self._traced_median_ns: float | None = None
        self._window_wanted = self._window_asked = False  # for whatever reason; by the user
        self._windows_again = 0
        self._without_shapes: ProfilerWindow | None = None  # beside which one with shapes is taken
        self._sampled_early = False  # stacks are being sampled before the first step has ended
        self._of_job_before = False  # what is known, or being measured, is the job before it was changed
        self._tuned_ns: int | None = None  # since when nothing is begun: what its trials say stands
        self._sweeps_wanted: list[Sweep] = []
        self._sweep_along: Sweep = "batch"
        self._looked_at: TracedSteps | None = None  # as they were when the sweep began
        self._held_ns: int | None = None  # since when nothing is begun: the ranks will be compared
        self._comparison: StepsWanted | None = None  # asked for, or under way
        self._compared_from: State | None = None  # it is under way; where to go on

    def step(self, now_ns: int, verdict: Verdict) -> None:
        """One look; `verdict` is as it stands."""
        self._verdict = verdict
        if self._first_step_ns is None and self._findings.window.seen:
            self._first_step_ns = now_ns
            self._findings.frames = None  # of a time without steps
        if self.state is State.WATCHING:
            self._watching(now_ns)
        elif self.state is State.JUDGED:
            self._judged(now_ns)
        else:
            self._measuring(now_ns, MEASUREMENTS[self.state])

    def again(self, now_ns: int, probing: Probing | None = None) -> None:
        """Measure anew: the job has changed, or the user asks. Goes on where it has not finished."""
        findings = self._findings
        if probing is not None:
            findings.options = replace(findings.options, probing=probing)
        if self.state is State.JUDGED:
            findings.profile = findings.slack = None
            self._windows_again = 0
            findings.traced = findings.probe = findings.frames = findings.collectives = None
            findings.tracing = None
            self._retraces = 0
            self._tuned_ns, self._of_job_before = None, False
            self._enter(State.WATCHING, now_ns, "measuring anew")

    def tuned(self, now_ns: int, *, changed: bool) -> None:
        """A tuning is over; where it has changed the job, that is measured anew, but not right now."""
        if self.state is State.JUDGED:
            self._tuned_ns, self._of_job_before = now_ns, changed
        elif changed:
            self.changed(now_ns)

    @property
    def shows_job_before(self) -> bool:
        """Whether what has been measured is the job as it was before a tuning."""
        return self._of_job_before and self._tuned_ns is not None

    def changed(self, now_ns: int) -> None:
        """A remedy is on or off: what was measured, or is being measured, is the job before it."""
        self._of_job_before = self.state not in (State.WATCHING, State.JUDGED)
        self._findings.profile = self._findings.slack = None
        self._windows_again = 0
        self.again(now_ns)

    def open_window(self) -> str | None:
        """Profile a few steps as soon as nothing else is measured; a sentence where that can't be."""
        if self._findings.options.readonly:
            return "the session is read-only"
        self._window_wanted = self._window_asked = True
        if self.state not in (State.PROFILING, State.DELAYING):
            self._findings.profile = self._findings.slack = None  # whoever asks waits for a new one
        return None

    def sweep(self, along: Sweep) -> str | None:
        """Replay the step at many sizes once all else is measured; a sentence where that can't be."""
        if self._findings.options.readonly:
            return "the session is read-only"
        findings = self._findings
        if findings.sweep is not None and findings.sweep.sweep == along:
            findings.sweep = None  # whoever asks waits for a new one
        under_way = self.state is State.SWEEPING and self._sweep_along == along
        if not under_way and along not in self._sweeps_wanted:
            self._sweeps_wanted.append(along)
        return None

    def hold(self, now_ns: int) -> None:
        """Begin nothing until the ranks of the job are compared or tuned, or for a minute."""
        self._held_ns = now_ns

    def go_on(self) -> None:
        """What it was held for is over."""
        self._held_ns = None

    def compare(self, for_ns: int, on_done: OnCompared) -> str | None:
        """Time steps while all other ranks do so too; a sentence where that can't be."""
        if self._findings.options.readonly:
            return "the session is read-only"
        if self._comparison is not None:
            return "another comparison is under way"
        self._comparison = StepsWanted(for_ns=for_ns, on_done=on_done)
        return None

    def _held(self, now_ns: int) -> bool:
        """Whether nothing else may begin; begins what was asked for."""
        if self._comparison is None:
            if self._held_ns is not None and now_ns - self._held_ns >= HOLD_NS:
                self._held_ns = None
            return self._held_ns is not None
        if self._compared_from is None:
            self._compared_from, self._held_ns = self.state, None
            window = self._findings.window
            step_ns = max(1, round(window.median_ns or window.last_ns))
            least = TIMED_LONG_STEPS if step_ns > LONG_STEP_NS else TIMED_STEPS
            steps = max(least, min(MOST_COMPARED_STEPS, self._comparison.for_ns // step_ns))
            self._begin(State.TIMING, now_ns, f"timing {steps} steps of all ranks", steps=steps)
        return True

    def _timed(self, now_ns: int) -> None:
        if self._comparison is None or self._compared_from is None or self._findings.collectives is None:
            self._profile(now_ns)
            return
        before, comparison = self._compared_from, self._comparison
        self._compared_from = self._comparison = None
        self._enter(before, now_ns, "going on")
        comparison.on_done(self._findings.collectives)

    def _enter(self, state: State, now_ns: int, activity: str) -> None:
        self.state, self._since_ns, self.activity = state, now_ns, activity

    def _begin(self, state: State, now_ns: int, activity: str, **fields: object) -> None:
        """Have the agent measure."""
        one = MEASUREMENTS[state]
        self._before = getattr(self._findings, one.field)
        self._enter(state, now_ns, activity)
        self._agent.command(one.command, partial(self._replied, one), **fields)

    def _replied(self, one: AgentMeasurement, reply: Heard) -> None:
        if MEASUREMENTS.get(self.state) is one and reply.get("ok") is not True:
            self._abstain(one, str(reply.get("why", "refused without a reason")))

    def _abstain(self, one: AgentMeasurement, why: str) -> None:
        setattr(self._findings, one.field, one.abstained(why, self._sweep_along))

    def _measuring(self, now_ns: int, one: AgentMeasurement) -> None:
        """Wait for what the agent was asked for, as long as that may take."""
        late = now_ns - self._since_ns > one.patience * max(
            STAGE_NS, STAGE_STEPS * self._findings.window.longest_ns
        )
        traced = self._findings.traced
        if self.state is State.SWEEPING and traced is not self._looked_at and traced is not None:
            self._looked_at = traced
            if traced.status != "ok":
                self._abstain(one, traced.why or "no step was recorded")
        if late and not self._has_come(one):
            so_far = getattr(self._findings, one.so_far) if one.so_far else None
            if so_far is None:
                self._abstain(one, one.late)
            else:
                setattr(self._findings, one.field, so_far)
        goes_on = self._compared_from is not None or self._sampled_early
        if self._has_come(one) and (goes_on or not self._held(now_ns)):
            one.then(self, now_ns)

    def _has_come(self, one: AgentMeasurement) -> bool:
        found = getattr(self._findings, one.field)
        return found is not None and found is not self._before

    def _profiled(self, now_ns: int) -> None:
        """On a device, also what no trace shows: whether it waits where the host is held up."""
        findings = self._findings
        first = self._without_shapes
        if first is not None and findings.profile is not None:
            findings.profile = _one_of_both(first, findings.profile)
        if not findings.is_asynchronous:
            self._sample(now_ns)
        elif self._wants_shapes() and not self._of_job_before:
            self._profile_shapes(now_ns)
        elif findings.options.probing == "off":
            self._stamped(now_ns)
        else:
            self._begin(State.DELAYING, now_ns, "holding the host up in a few steps")

    def _stamped(self, now_ns: int) -> None:
        self._agent.command("stamp", lambda reply: None, **STAMP_SOME)
        self._sample(now_ns)

    def _traced(self, now_ns: int) -> None:
        self._traced_median_ns = self._findings.window.median_ns
        self._time(now_ns)

    def _watching(self, now_ns: int) -> None:
        window = self._findings.window
        if self._first_step_ns is None:
            if self._findings.frames is None and now_ns - self._since_ns >= FIRST_STEP_NS:
                self._sampled_early = True
                activity = "no step has ended since attach: sampling where the main thread stands"
                self._begin_sampling(now_ns, activity, FIRST_STEP_FRAMES_MS)
            return
        known = self._findings.anatomy is not None or now_ns - self._first_step_ns > ANATOMY_NS
        self.activity = "measuring steps" if known else "finding out how the loop is built"
        if known and self._held(now_ns):
            return
        if not self._free(now_ns, not self._several or not self._turn.elsewhere()):
            return
        # Long steps are traced while the loop's pattern settles: what comes too early is dropped there.
        steps = window.seen if window.last_ns > LONG_STEP_NS else window.count
        if known and steps >= FEW_STEPS and self._may_measure(now_ns):
            self._sample(now_ns)

    @property
    def _several(self) -> bool:
        """The job has other ranks, which wait for what is done to this one."""
        facts = self._findings.facts
        return facts is not None and facts.has_other_ranks

    def _may_measure(self, now_ns: int) -> bool:
        """Take the turn; false while another rank is being measured."""
        return self._free(now_ns, not self._several or self._turn.take())

    def _free(self, now_ns: int, free: bool) -> bool:
        if not free:
            self.activity = AWAITS_TURN
        return self._waiting.over(now_ns, free)

    def _trace(self, now_ns: int) -> None:
        findings = self._findings
        why_not = self._untraceable()
        if why_not is not None:
            findings.traced = TracedSteps(status="abstained", why=why_not)
            self._window_wanted = self._window_wanted or findings.profile is None
        if findings.options.readonly:
            self._profile(now_ns)
            return
        if why_not is not None:
            self._time(now_ns)
            return
        long = findings.window.last_ns > LONG_STEP_NS and not self._retraces
        steps = TRACED_LONG_STEPS if long else TRACED_STEPS
        probe = findings.options.probing != "off" and findings.probe is None
        self._begin(State.TRACING, now_ns, f"tracing {steps} steps", steps=steps, probe=probe)

    def _time(self, now_ns: int) -> None:
        """In a job of several ranks: how long this one waits for the others."""
        if not self._several or self._findings.collectives is not None:
            self._profile(now_ns)
            return
        steps = TIMED_LONG_STEPS if self._findings.window.last_ns > LONG_STEP_NS else TIMED_STEPS
        self._begin(State.TIMING, now_ns, "timing collectives", steps=steps)

    def _profile(self, now_ns: int) -> None:
        """Where it was asked for, or the only way to see kernels: on a GPU, in compiled code."""
        findings = self._findings
        if not self._window_wanted or findings.options.readonly:
            self._window_wanted = False
            self._sample(now_ns)
            return
        self._window_wanted = False
        findings.profile = findings.slack = None  # they are read beside each other
        on_gpu = findings.facts is not None and findings.facts.is_asynchronous
        stall = (
            "training will stall for up to a few seconds" if on_gpu else "training will stall for a moment"
        )
        activity = f"profiling {WINDOW_STEPS} steps: {stall}"
        if on_gpu:  # first: what is asked while the window is on waits for its end
            self._agent.command("stamp", lambda reply: None, **STAMP_EACH)
        self._without_shapes = None
        self._begin_window(now_ns, activity, steps=WINDOW_STEPS, shapes=False)

    def _begin_window(self, now_ns: int, activity: str, *, steps: int, shapes: bool) -> None:
        asked = self._window_asked
        self._begin(State.PROFILING, now_ns, activity, steps=steps, shapes=shapes, asked=asked)

    def _wants_shapes(self) -> bool:
        """Only work against the roofs needs them: of products, in a job that its kernels limit.

        They make switching the profiler off last twice as long, most of all where the host is what limits.
        """
        window = self._findings.profile
        if window is None or window.verdict is None or window.shapes or self._without_shapes is not None:
            return False
        products = window.verdict.shares.compute or 0.0
        return window.verdict.limit == "kernels" and products >= NOTICEABLE

    def _profile_shapes(self, now_ns: int) -> None:
        self._without_shapes = self._findings.profile
        activity = f"profiling {SHAPED_STEPS} steps with the shapes of their products"
        self._begin_window(now_ns, activity, steps=SHAPED_STEPS, shapes=True)

    def _sample(self, now_ns: int) -> None:
        """First of all, while nothing of ours makes any line of the job dearer: every verdict names lines."""
        if self._findings.frames is not None:
            self._traced_or_not(now_ns)
            return
        stats = self._findings.window.stats
        step_ns = stats.mean or 0
        if (stats.p99 or 0) > LONGER * (stats.median or 0):
            step_ns = max(step_ns, LONG_STEPS_NS)  # the lines of long steps are wanted too
        for_ms = max(FRAMES_MS, min(MOST_FRAMES_MS, FRAMES_STEPS * step_ns // 1_000_000))
        self._begin_sampling(now_ns, "sampling where the training thread stands", for_ms)

    def _traced_or_not(self, now_ns: int) -> None:
        if self._findings.traced is None and not self._findings.options.readonly:
            self._trace(now_ns)
        else:
            self._probe(now_ns)

    def _begin_sampling(self, now_ns: int, activity: str, for_ms: int) -> None:
        usual_ns = int(self._findings.window.median_ns or 0) or None
        self._begin(
            State.SAMPLING, now_ns, activity, for_ms=for_ms, every_ms=FRAMES_EVERY_MS, usual_ns=usual_ns
        )

    def _sampled(self, now_ns: int) -> None:
        if not self._sampled_early:
            self._traced_or_not(now_ns)
            return
        self._sampled_early = False
        if self._first_step_ns is not None:
            self._findings.frames = None
        self._enter(State.WATCHING, now_ns, "waiting for the first steps")

    def _probe(self, now_ns: int) -> None:
        """Wait for the replay of the step that was recorded as the last of the traced ones."""
        findings = self._findings
        wanted = findings.options.probing != "off" and not findings.options.readonly
        traced = findings.traced
        if wanted and findings.probe is None and traced is not None and traced.status != "ok":
            findings.probe = ShadowProbe(status="abstained", why=traced.why)
        if not wanted or findings.probe is not None:
            self._rest(now_ns)
            return
        self._before = None
        self._enter(State.PROBING, now_ns, "probing other batch sizes")

    def _begin_sweep(self, now_ns: int, along: Sweep) -> None:
        findings = self._findings
        self._sweeps_wanted.remove(along)
        why_not = self._untraceable()
        if why_not is not None:
            findings.sweep = ShadowProbe(status="abstained", why=why_not, sweep=along)
            self._turn.give()
            return
        self._sweep_along, self._looked_at = along, findings.traced
        activity = f"replaying a step at other sizes of its {along}"
        self._begin(State.SWEEPING, now_ns, activity, sweep=along)

    def _rest(self, now_ns: int) -> None:
        self.finished = True
        self._turn.give()
        self._enter(State.JUDGED, now_ns, "watching")

    def _judged(self, now_ns: int) -> None:
        """Watch; measure again where that may help: after a drift, or while in doubt, ever more rarely."""
        findings = self._findings
        if self._held(now_ns):
            return
        asked = self._window_wanted or bool(self._sweeps_wanted)
        if self._tuned_ns is not None and now_ns - self._tuned_ns < DRIFT_NS and not asked:
            self.activity = "watching"
            return
        self._tuned_ns = None
        if self._of_job_before:
            self._window_wanted = self._window_wanted or findings.profile is not None
            self.again(now_ns)
            return
        if self._window_is_due(now_ns):
            measure: Callable[[int], None] = self._profile
        elif self._sweeps_wanted:
            measure = partial(self._begin_sweep, along=self._sweeps_wanted[0])
        elif self._drifted(now_ns):
            self.again(now_ns)
            return
        elif self._in_doubt(now_ns):
            measure = self._retrace
        else:
            self.activity = "watching"
            return
        if self._may_measure(now_ns):
            measure(now_ns)

    def _window_is_due(self, now_ns: int) -> bool:
        """One was asked for, the job has been changed since the last one, or that one was unlucky."""
        findings = self._findings
        if self._window_wanted or self._untraceable() is None or findings.options.readonly:
            return self._window_wanted
        window, turn = findings.profile, self._windows_again
        unlucky = window is not None and (
            window.status != "ok" or (window.verdict is not None and self._verdict.limit == "unknown")
        )
        if unlucky and turn < len(WINDOW_AGAIN_NS) and not self._machine_is_busy():
            if now_ns - self._since_ns < WINDOW_AGAIN_NS[turn]:
                return False
            self._windows_again += 1
            self._window_wanted = True
        return self._window_wanted

    def _in_doubt(self, now_ns: int) -> bool:
        findings = self._findings
        if self._verdict.confidence == "high" or self._untraceable() is not None or findings.options.readonly:
            return False
        if self._trace_was_disturbed():
            # Another look brings something once the machine is quiet, and nothing before.
            quiet = self._machine_is_quiet()
            return now_ns - self._since_ns >= (RETRACE_NS[0] if quiet else STILL_BUSY_NS)
        return now_ns - self._since_ns >= RETRACE_NS[min(self._retraces, len(RETRACE_NS) - 1)]

    def _trace_was_disturbed(self) -> bool:
        traced = self._findings.traced
        return traced is not None and (traced.run_delay_share or 0.0) >= BUSY_AT

    def _machine_is_quiet(self) -> bool:
        looks = [sample.run_delay_share for sample in list(self._findings.host)[-QUIET_LOOKS:]]
        return len(looks) == QUIET_LOOKS and all(delay is not None and delay < BUSY_AT for delay in looks)

    def _machine_is_busy(self) -> bool:
        looks = [sample.run_delay_share for sample in list(self._findings.host)[-QUIET_LOOKS:]]
        return any(delay is not None and delay >= BUSY_AT for delay in looks)

    def _retrace(self, now_ns: int) -> None:
        self._retraces += 1
        self._trace(now_ns)

    def _drifted(self, now_ns: int) -> bool:
        median_ns = self._findings.window.median_ns
        if not self._traced_median_ns or median_ns is None or now_ns - self._since_ns < DRIFT_NS:
            return False
        return abs(median_ns / self._traced_median_ns - 1) > DRIFT

    def _untraceable(self) -> str | None:
        if self._findings.compiled:
            return "the job runs compiled code, which tracing would make it compile anew"
        if self._findings.facts is not None and self._findings.facts.is_asynchronous:
            return "operators run asynchronously on a GPU"
        return None


def _one_of_both(first: ProfilerWindow, shaped: ProfilerWindow) -> ProfilerWindow:
    """The window with shapes, with what both took of the job; the first one where the other is none."""
    if not shaped.shapes:
        return first
    stall_ns = None if shaped.stall_ns is None else shaped.stall_ns + (first.stall_ns or 0)
    write_ns = None if shaped.write_ns is None else shaped.write_ns + (first.write_ns or 0)
    return msgspec.structs.replace(shaped, stall_ns=stall_ns, write_ns=write_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMeasurement:
    """What the agent is asked for in one state, and what stands for it where it does not come."""

    command: str
    field: str  # of the findings
    late: str
    abstained: Callable[[str, Sweep], Record]
    then: Callable[[MeasurementSequence, int], None]
    patience: int = 1  # times as long as usual
    so_far: str = ""  # field of the findings with the part that has come


MEASUREMENTS = {
    State.TRACING: AgentMeasurement(
        command="trace",
        field="traced",
        late="the traced steps did not come in time",
        abstained=lambda why, along: TracedSteps(status="abstained", why=why),
        then=MeasurementSequence._traced,
        so_far="tracing",
    ),
    State.TIMING: AgentMeasurement(
        command="collectives",
        field="collectives",
        late="the timed steps did not come in time",
        abstained=lambda why, along: CollectiveWaits(status="abstained", why=why),
        then=MeasurementSequence._timed,
        patience=2,
    ),
    State.PROFILING: AgentMeasurement(
        command="window",
        field="profile",
        late="the window did not come in time",
        abstained=lambda why, along: ProfilerWindow(status="abstained", why=why),
        then=MeasurementSequence._profiled,
    ),
    State.DELAYING: AgentMeasurement(
        command="slack",
        field="slack",
        late="the device came to the end of too few steps in time",
        abstained=lambda why, along: HostSlack(status="abstained", why=why),
        then=MeasurementSequence._stamped,
    ),
    State.SAMPLING: AgentMeasurement(
        command="frames",
        field="frames",
        late="",
        abstained=lambda why, along: FrameSamples(samples=0, places=[]),
        then=MeasurementSequence._sampled,
    ),
    # A process of its own replays what the traced steps' last one has recorded.
    State.PROBING: AgentMeasurement(
        command="",
        field="probe",
        late="the replay of a recorded step did not end in time",
        abstained=lambda why, along: ShadowProbe(status="abstained", why=why),
        then=MeasurementSequence._rest,
        patience=4,
    ),
    State.SWEEPING: AgentMeasurement(
        command="trace",
        field="sweep",
        late="the sweep did not end in time",
        abstained=lambda why, along: ShadowProbe(status="abstained", why=why, sweep=along),
        then=MeasurementSequence._rest,
        patience=4,
    ),
}
