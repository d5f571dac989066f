"""The course of measurement: sample stacks, trace or profile, probe, then watch.

In: the findings so far and the clock. Out: commands to the agent, one at a time. A refusal, or an
answer that does not come, becomes an abstention with its reason, and the course goes on. It is a generator:
each `yield` waits for the session's next look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

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
from autobrrr.sidecar.process.session_options import AWAITS_TURN, Probing, State
from autobrrr.sidecar.session.collected import Collected
from autobrrr.sidecar.sockets.socket_frames import AgentLink, Heard

SECOND_NS = 1_000_000_000
FEW_STEPS = 4  # before the first traced one
ANATOMY_NS = 20 * SECOND_NS  # once steps come
STAGE_NS, STAGE_STEPS = 30 * SECOND_NS, 60  # after either, an answer is no longer waited for
LONG_STEP_NS = 200_000_000  # from here on so many steps would keep the first verdict waiting
TRACED_STEPS, TRACED_LONG_STEPS = 4, 3
WINDOW_STEPS, SHAPED_STEPS = 4, 2
TIMED_STEPS, TIMED_LONG_STEPS = 16, 8
NOTICEABLE = 0.15  # of the step: shapes of products are worth a second window
FRAMES_MS, MOST_FRAMES_MS = 1500, 6000
FRAMES_STEPS = 16  # at least: what a step waits for comes in bursts
FRAMES_EVERY_MS = 10
FIRST_STEP_NS, FIRST_STEP_FRAMES_MS = 6 * SECOND_NS, 4000  # without a step: where the thread stands
RETRACE_NS = (5 * SECOND_NS, 15 * SECOND_NS, 60 * SECOND_NS, 300 * SECOND_NS)
WINDOW_AGAIN_NS = RETRACE_NS[:2]  # after an unlucky window: each one holds training up
STILL_BUSY_NS = 30 * SECOND_NS  # a trace that others disturbed, while they go on
QUIET_LOOKS = 3  # at the machine, one after the other
HOLD_NS = 60 * SECOND_NS  # for the other ranks to be there
MOST_COMPARED_STEPS = 400
DRIFT, DRIFT_NS = 0.4, 60 * SECOND_NS  # the median step has moved so far, for so long, since it was traced

OnCompared = Callable[[CollectiveWaits], None]
Course = Iterator[None]  # once a look


class Measurement(NamedTuple):
    """One that the agent makes.

    Attributes:
        command: What the agent is asked; nothing where it has been.
        field: Of the findings, where it comes.
        record: Stands for it where it does not come, with the reason.
        late: The reason where it is late.
        patience: Times as long as usual.
    """

    state: State
    command: str
    field: str
    record: Callable[..., Record]
    late: str
    patience: int = 1

    def abstained(self, why: str) -> Record:
        return self.record(status="abstained", why=why)


_of_sizes = partial(ShadowProbe, sweep="batch")
FRAMES = Measurement(State.SAMPLING, "frames", "frames", lambda **_: FrameSamples(samples=0, places=[]), "")
TRACE = Measurement(State.TRACING, "trace", "traced", TracedSteps, "the traced steps did not come in time")
WAITS = Measurement(
    State.TIMING, "collectives", "collectives", CollectiveWaits, "the timed steps did not come in time", 2
)
WINDOW = Measurement(State.PROFILING, "window", "profile", ProfilerWindow, "the window did not come in time")
SLACK = Measurement(
    State.DELAYING, "slack", "slack", HostSlack, "the device came to the end of too few steps in time"
)
PROBE = Measurement(
    State.PROBING, "", "probe", ShadowProbe, "the replay of a recorded step did not end in time", 4
)
BUSY_NS = 5 * SECOND_NS
REPLAY = Measurement(
    State.PROBING, "trace", "probe", ShadowProbe, "the replay of a recorded step did not end in time", 4
)
SWEEP = Measurement(State.SWEEPING, "trace", "sweep", _of_sizes, "the sweep did not end in time", 4)


class MeasurementSequence:
    """Drives one agent through the measurements.

    Attributes:
        agent: None before the agent is in the job, and with `--outside`.
        expect_replay: Is told whether a step will be recorded soon.
        rest_replay: Is told that steps are traced now, beside which no process of ours should run.
    """

    def __init__(self, findings: Collected, clock_ns: Callable[[], int]) -> None:
        self.agent: AgentLink | None = None
        self.expect_replay: Callable[[bool], None] = lambda soon: None
        self.rest_replay: Callable[[], None] = lambda: None
        self.state = State.WATCHING
        self.activity = "waiting for the first steps"
        self.finished = False  # everything that was to be measured once has been
        self._findings, self._clock_ns = findings, clock_ns
        self._since_ns = clock_ns()
        self._first_step_ns: int | None = None
        self._awaited: object = None  # the measurement under way
        self._retraces = 0
        self._traced_median_ns: float | None = None
        self._window_wanted = self._window_asked = False  # for whatever reason; by the user
        self._windows_again = 0
        self._of_job_before = False  # what is known, or being measured, is the job before it was changed
        self._tuned_ns: int | None = None  # since when nothing is begun: what its trials say stands
        self._sweep_wanted = False
        self._held_ns: int | None = None  # since when nothing is begun: the ranks will be compared
        self._comparison: Callable[[], Course] | None = None  # asked for, or under way
        self._course = self._from_the_start()

    @property
    def _now_ns(self) -> int:
        return self._clock_ns()

    def begin(self, agent: AgentLink) -> None:
        """The agent is in."""
        self.agent, self._since_ns = agent, self._now_ns

    def step(self, verdict: Verdict) -> None:
        """One look; `verdict` is as it stands."""
        self._verdict = verdict
        if self._first_step_ns is None and self._findings.window.seen:
            self._first_step_ns = self._now_ns
            self._findings.frames = None  # of a time without steps
        next(self._course, None)

    def again(self, probing: Probing | None = None) -> None:
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
            self._enter(State.WATCHING, "measuring anew")
            self._course = self._from_the_start()

    def tuned(self, *, changed: bool) -> None:
        """A tuning is over; where it has changed the job, that is measured anew, but not right now."""
        if self.state is State.JUDGED:
            self._tuned_ns, self._of_job_before = self._now_ns, changed
        elif changed:
            self.changed()

    @property
    def shows_job_before(self) -> bool:
        """Whether what has been measured is the job as it was before a tuning."""
        return self._of_job_before and self._tuned_ns is not None

    def changed(self) -> None:
        """A remedy is on or off: what was measured, or is being measured, is the job before it."""
        self._of_job_before = self.state not in (State.WATCHING, State.JUDGED)
        self._findings.profile = self._findings.slack = None
        self._windows_again = 0
        self.again()

    def open_window(self) -> None:
        """Profile a few steps as soon as nothing else is measured."""
        self._window_wanted = self._window_asked = True
        if self.state not in (State.PROFILING, State.DELAYING):
            self._findings.profile = self._findings.slack = None  # whoever asks waits for a new one

    def sweep(self) -> None:
        """Replay the step at many batch sizes once all else is measured."""
        self._findings.sweep = None  # whoever asks waits for a new one
        self._sweep_wanted = self.state is not State.SWEEPING

    def drain(self, on_drained: Callable[[Heard], None]) -> None:
        """Have the job stand still for a tenth of a second at a boundary, with its device at rest."""
        if self.agent is not None:
            self.agent.command("drain", on_drained)

    def hold(self) -> None:
        """Begin nothing until the ranks of the job are compared or tuned, or for a minute."""
        self._held_ns = self._now_ns

    def go_on(self) -> None:
        """What it was held for is over."""
        self._held_ns = None

    def compare(self, for_ns: int, on_done: OnCompared) -> bool:
        """Time steps while all other ranks do so too; false where another comparison is under way."""
        if self._comparison is not None:
            return False
        self._comparison = partial(self._compare, for_ns, on_done)
        return True

    def _from_the_start(self) -> Course:
        yield from self._watch()
        traces = self._findings.traced is None and not self._findings.options.readonly
        if traces and self._untraceable() is None:
            self.expect_replay(True)
        if self._findings.frames is None:
            yield from self._sample()
        if traces:
            yield from self._trace()
        while True:
            yield from self._probe()
            self.expect_replay(False)  # also where the record never came: no process stays beside training
            self.finished = True
            self._findings.turn.give()
            self._enter(State.JUDGED, "watching")
            measure = None
            while measure is None or not self._may_measure():
                yield
                yield from self._until_free()
                measure = self._due()
            yield from measure()

    def _watch(self) -> Course:
        """Wait for some steps, for the structure of the loop, and for this rank's turn."""
        findings, window = self._findings, self._findings.window
        while True:
            if self._first_step_ns is not None:
                known = findings.anatomy is not None or self._now_ns - self._first_step_ns > ANATOMY_NS
                self.activity = "measuring steps" if known else "finding out how the loop is built"
                if known:
                    yield from self._until_free()
                # Long steps are traced while the loop's pattern settles: too early, they are dropped there.
                steps = window.seen if window.last_ns > LONG_STEP_NS else window.count
                if findings.waits(self._now_ns):
                    self.activity = AWAITS_TURN
                elif known and steps >= FEW_STEPS and self._may_measure():
                    return
            elif findings.frames is None and self._now_ns - self._since_ns >= FIRST_STEP_NS:
                activity = "no step has ended since attach: sampling where the main thread stands"
                yield from self._begin_sampling(activity, FIRST_STEP_FRAMES_MS)
                if self._first_step_ns is not None:
                    findings.frames = None
                self._enter(State.WATCHING, "waiting for the first steps")
            yield

    def _held(self) -> bool:
        """Whether nothing else may begin."""
        if self._held_ns is not None and self._now_ns - self._held_ns >= HOLD_NS:
            self._held_ns = None
        return self._comparison is not None or self._held_ns is not None

    def _until_free(self) -> Course:
        """Wait while this rank is held; time steps if the ranks are being compared."""
        while self._held():
            if self._comparison is not None:
                yield from self._comparison()
            yield

    def _compare(self, for_ns: int, on_done: OnCompared) -> Course:
        before, self._held_ns = self.state, None
        window = self._findings.window
        step_ns = max(1, round(window.median_ns or window.last_ns))
        least = TIMED_LONG_STEPS if step_ns > LONG_STEP_NS else TIMED_STEPS
        steps = max(least, min(MOST_COMPARED_STEPS, for_ns // step_ns))
        yield from self._answered(WAITS, f"timing {steps} steps of all ranks", steps=steps)
        self._comparison = None
        self._enter(before, "going on")
        if self._findings.collectives is not None:
            on_done(self._findings.collectives)

    def _enter(self, state: State, activity: str) -> None:
        self.state, self._since_ns, self.activity = state, self._now_ns, activity

    def _measured(self, wanted: Measurement, activity: str, **asked: object) -> Course:
        """Have the agent measure; go on once that is there, and this rank is free."""
        yield from self._answered(wanted, activity, **asked)
        yield from self._until_free()

    def _answered(self, wanted: Measurement, activity: str, **asked: object) -> Course:
        """Ask the agent; wait for what it was asked for, as long as that may take."""
        findings, this, field = self._findings, object(), wanted.field
        before = getattr(findings, field) if wanted.command else None
        self._awaited = this
        self._enter(wanted.state, activity)

        def replied(reply: Heard) -> None:
            if self._awaited is this and reply.get("ok") is not True:
                setattr(findings, field, wanted.abstained(str(reply.get("why", "refused without a reason"))))

        if wanted.command and self.agent is not None:
            self.agent.command(wanted.command, replied, **asked)
        while True:
            yield
            found = getattr(findings, field)
            if found is not None and found is not before:
                break
            longest_ns = wanted.patience * max(STAGE_NS, STAGE_STEPS * findings.window.longest_ns)
            if self._now_ns - self._since_ns > longest_ns:
                so_far = findings.tracing if wanted is TRACE else None
                setattr(findings, field, so_far or wanted.abstained(wanted.late))
                break
        self._awaited = None

    def _stamp(self, how: Mapping[str, int]) -> None:
        if self.agent is not None:
            self.agent.command("stamp", lambda reply: None, **how)

    def _trace(self) -> Course:
        findings = self._findings
        why_not = self._untraceable()
        if why_not is not None:
            findings.traced = TracedSteps(status="abstained", why=why_not)
            self._window_wanted = self._window_wanted or findings.profile is None
        else:
            long = findings.window.last_ns > LONG_STEP_NS and not self._retraces
            steps = TRACED_LONG_STEPS if long else TRACED_STEPS
            probe = findings.options.probing != "off" and findings.probe is None
            if findings.fills_cpus:
                self.rest_replay()
            yield from self._measured(TRACE, f"tracing {steps} steps", steps=steps, probe=probe)
            self._traced_median_ns = findings.window.median_ns
        if self._findings.several and findings.collectives is None:  # how long this rank waits for the others
            steps = TIMED_LONG_STEPS if findings.window.last_ns > LONG_STEP_NS else TIMED_STEPS
            yield from self._measured(WAITS, "timing collectives", steps=steps)
        yield from self._profile()

    def _profile(self) -> Course:
        """Profile if asked to, or if nothing else sees kernels: on a GPU, in compiled code.

        On a device, also what no trace shows: whether it waits where the host is held up.
        """
        findings = self._findings
        wanted, self._window_wanted = self._window_wanted, False
        if not wanted or findings.options.readonly:
            return
        findings.profile = findings.slack = None  # they are read beside each other
        if not findings.is_asynchronous:
            stall = "training will stall for a moment"
            yield from self._window(f"profiling {WINDOW_STEPS} steps: {stall}", WINDOW_STEPS)
            return
        stall = "training will stall for up to a few seconds"
        # First: what is asked while the window is on waits for its end.
        self._stamp(STAMP_EACH)
        yield from self._window(f"profiling {WINDOW_STEPS} steps: {stall}", WINDOW_STEPS)
        first = findings.profile
        if first is not None and _wants_shapes(first) and not self._of_job_before:
            activity = f"profiling {SHAPED_STEPS} steps with the shapes of their products"
            yield from self._window(activity, SHAPED_STEPS, shapes=True)
            if findings.profile is not None:
                findings.profile = _one_of_both(first, findings.profile)
        if findings.options.probing != "off":
            yield from self._measured(SLACK, "holding the host up in a few steps")
        self._stamp(STAMP_SOME)

    def _window(self, activity: str, steps: int, *, shapes: bool = False) -> Course:
        return self._measured(WINDOW, activity, steps=steps, shapes=shapes, asked=self._window_asked)

    def _sample(self) -> Course:
        """First of all, while nothing of ours makes any line of the job dearer: every verdict names lines."""
        step_ns = self._findings.window.stats.mean or 0
        for_ms = max(FRAMES_MS, min(MOST_FRAMES_MS, FRAMES_STEPS * step_ns // 1_000_000))
        return self._begin_sampling("sampling where the training thread stands", for_ms)

    def _begin_sampling(self, activity: str, for_ms: int) -> Course:
        usual_ns = int(self._findings.window.median_ns or 0) or None
        return self._measured(FRAMES, activity, for_ms=for_ms, every_ms=FRAMES_EVERY_MS, usual_ns=usual_ns)

    def _probe(self) -> Course:
        """Wait for the replay of the step that was recorded as the last of the traced ones."""
        findings = self._findings
        if findings.options.probing == "off" or findings.options.readonly or findings.probe is not None:
            return
        if findings.facts is not None and findings.facts.on_cuda and not findings.compiled:
            yield from self._replay_on_device()
        elif findings.traced is not None and findings.traced.status != "ok":
            findings.probe = ShadowProbe(status="abstained", why=findings.traced.why)
        else:
            yield from self._measured(PROBE, "probing other batch sizes")  # a separate process replays it

    def _replay_on_device(self) -> Course:
        """Record a step and replay it on the job's own device, if the user allows what no card has proven."""
        findings, step_ns = self._findings, self._findings.window.median_ns
        devices = findings.anatomy.gpu_uuids if findings.anatomy is not None else []
        seen = next(iter(findings.gpu.samples()[-1:]), None) if findings.gpu is not None else None
        if not findings.options.unproven:
            why = "not measured on a GPU; autobrrr tune --allow unproven does"
        elif findings.several or len(devices) != 1 or not step_ns:
            why = "a step is replayed on a GPU only where it is the job's only one"
        elif seen is None or seen.memory_total_bytes is None or seen.memory_used_bytes is None:
            why = "nobody knows how much of the GPU's memory is free"
        elif seen.other_processes:
            why = "other programs compute on the GPU"
        else:
            free_bytes = seen.memory_total_bytes - seen.memory_used_bytes
            asked = {"device": devices[0], "step_ns": int(step_ns), "free_bytes": free_bytes}
            asked["steps"] = TRACED_LONG_STEPS
            until_ns, activity = self._now_ns + BUSY_NS, "replaying a step at twice its batch on the GPU"
            while findings.probe is None:
                yield from self._measured(REPLAY, activity, **asked)
                told = findings.probe.why if findings.probe is not None else None
                if self._now_ns < until_ns and (told or "").startswith("busy"):  # with what came before
                    findings.probe = None
                yield
            return
        findings.probe = ShadowProbe(status="abstained", why=why)

    def _sweep(self) -> Course:
        findings, traced = self._findings, self._findings.traced
        self._sweep_wanted, why_not = False, self._untraceable()
        if why_not is not None:
            findings.sweep = _of_sizes(status="abstained", why=why_not)
            return
        for _ in self._measured(SWEEP, "replaying a step at other sizes of its batch", sweep="batch"):
            yield
            if findings.traced is not traced and findings.traced is not None:
                traced = findings.traced
                if traced.status != "ok":
                    why_not = traced.why or "no step was recorded"
                    findings.sweep = _of_sizes(status="abstained", why=why_not)

    def _may_measure(self) -> bool:
        """Take the turn; false while another rank is being measured."""
        free = not self._findings.several or self._findings.turn.take(self._now_ns)
        self.activity = self.activity if free else AWAITS_TURN
        return free

    def _due(self) -> Callable[[], Course] | None:
        """What to measure now; where the job has changed, the course begins anew. None: watch on."""
        findings = self._findings
        self.activity = "watching"
        asked = self._window_wanted or self._sweep_wanted
        if self._tuned_ns is not None and self._now_ns - self._tuned_ns < DRIFT_NS and not asked:
            return None
        self._tuned_ns = None
        if self._of_job_before:
            self._window_wanted = self._window_wanted or findings.profile is not None
            self.again()
            return None
        if self._window_is_due():
            return self._profile
        if self._sweep_wanted:
            return self._sweep
        if self._drifted():
            self.again()
            return None
        return self._retrace if self._in_doubt() else None

    def _window_is_due(self) -> bool:
        """One was asked for, the job has been changed since the last one, or that one was unlucky."""
        findings = self._findings
        if self._window_wanted or self._untraceable() is None or findings.options.readonly:
            return self._window_wanted
        window, turn = findings.profile, self._windows_again
        unlucky = window is not None and (
            window.status != "ok" or (window.verdict is not None and self._verdict.limit == "unknown")
        )
        if unlucky and turn < len(WINDOW_AGAIN_NS) and self._now_ns - self._since_ns >= WINDOW_AGAIN_NS[turn]:
            self._window_wanted = all(each is None or each < BUSY_AT for each in self._delays())
            self._windows_again += self._window_wanted
        return self._window_wanted

    def _in_doubt(self) -> bool:
        """Whether another trace may help: less and less often, and not beside other programs."""
        findings, traced = self._findings, self._findings.traced
        if self._verdict.confidence == "high" or self._untraceable() is not None or findings.options.readonly:
            return False
        due_ns = RETRACE_NS[min(self._retraces, len(RETRACE_NS) - 1)]
        if traced is not None and (traced.run_delay_share or 0.0) >= BUSY_AT:
            delays = self._delays()
            quiet = len(delays) == QUIET_LOOKS and all(each is not None and each < BUSY_AT for each in delays)
            due_ns = RETRACE_NS[0] if quiet else STILL_BUSY_NS
        return self._now_ns - self._since_ns >= due_ns

    def _delays(self) -> list[float | None]:
        return [sample.run_delay_share for sample in self._findings.host[-QUIET_LOOKS:]]

    def _retrace(self) -> Course:
        self._retraces += 1
        return self._trace()

    def _drifted(self) -> bool:
        median_ns = self._findings.window.median_ns
        if not self._traced_median_ns or median_ns is None or self._now_ns - self._since_ns < DRIFT_NS:
            return False
        return abs(median_ns / self._traced_median_ns - 1) > DRIFT

    def _untraceable(self) -> str | None:
        if self._findings.compiled:
            return "tracing would make the job compile its code again"
        return "operators run asynchronously on a GPU" if self._findings.is_asynchronous else None


def _wants_shapes(window: ProfilerWindow) -> bool:
    """Only work against the roofs needs them: of products, in a job that its kernels limit.

    They make switching the profiler off last twice as long, most of all where the host is what limits.
    """
    if window.verdict is None or window.shapes:
        return False
    return window.verdict.limit == "kernels" and (window.verdict.shares.compute or 0.0) >= NOTICEABLE


def _one_of_both(first: ProfilerWindow, shaped: ProfilerWindow) -> ProfilerWindow:
    """The window with shapes, with what both took of the job; the first one where the other is none."""
    if not shaped.shapes:
        return first
    stall_ns = None if shaped.stall_ns is None else shaped.stall_ns + (first.stall_ns or 0)
    write_ns = None if shaped.write_ns is None else shaped.write_ns + (first.write_ns or 0)
    return msgspec.structs.replace(shaped, stall_ns=stall_ns, write_ns=write_ns)
