"""Two sessions, or two traces, side by side: figures of both, and why they may not be comparable.

Two runs at two times are no A/B test: nothing here claims a speed-up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from autobrrr.errors import UsageError
from autobrrr.quantities import duration, share
from autobrrr.records import SCHEMA, Diagnosis, Record, limit_words
from autobrrr.records.gain_words import gain_words
from autobrrr.report import page_model as pm
from autobrrr.report.page_model import Tone
from autobrrr.report.pages.trace_page import idle_causes, plain
from autobrrr.report.pages.tuning_parts import trial_label
from autobrrr.report.past_session import SessionData
from autobrrr.trace.trace_records import Analysis, TraceAnalysis

NO_AB_TEST = "These are two runs at two times, not an A/B test: what the machine did besides differs, too."
SAME = 0.02  # figures that differ by less count as the same
SAME_POINTS = 0.005  # the same of shares
MOST_WORDS, MOST_KERNELS, NAME_LETTERS = 12, 12, 60
NOT_TRIED = "not tried"
LESS_IS_BETTER = ("idle", "communication, exposed", "copies, exposed")
Unit: TypeAlias = Literal["ns", "share", "count"]


class ComparedFigure(Record, frozen=True, kw_only=True):
    """One figure of both; None is "not measured"."""

    group: str
    name: str
    unit: Unit
    before: float | None
    after: float | None
    less_is_better: bool | None = None  # None: it is no matter of better or worse

    @property
    def ratio(self) -> float | None:
        """After over before."""
        return self.after / self.before if self.before and self.after is not None else None

    @property
    def side(self) -> Literal["", "better", "worse"]:
        """Whether it got better; "" where it stayed, or where nobody can say."""
        if self.before is None or self.after is None or self.less_is_better is None or self.is_same:
            return ""
        return "better" if (self.after < self.before) == self.less_is_better else "worse"

    @property
    def is_same(self) -> bool:
        """Whether both are measured and differ by next to nothing."""
        if self.before is None or self.after is None:
            return False
        apart = abs(self.after - self.before)
        return apart < SAME_POINTS if self.unit == "share" else apart <= SAME * self.before

    @property
    def change(self) -> str:
        """How it changed: a share by points, all else by a factor."""
        if self.before is None or self.after is None:
            return ""
        if self.is_same:
            return "same"
        if self.unit == "share":
            return f"{100 * (self.after - self.before):+.0f} points"
        return "new" if self.ratio is None else f"{self.ratio:.2f}x"

    def said(self, value: float | None) -> str:
        """One of both with its unit."""
        if value is None:
            return "-"
        if self.unit == "count":
            return f"{value:.4g}"
        return duration(value) if self.unit == "ns" else share(value)


class ComparedWord(Record, frozen=True, kw_only=True):
    """What both say in words."""

    name: str
    before: str
    after: str


class SideBySide(Record, frozen=True, kw_only=True):
    """Two of a kind; `caveats` say why their figures may not be comparable."""

    kind: Literal["sessions", "traces"]
    before: str
    after: str
    words: list[ComparedWord]
    figures: list[ComparedFigure]
    caveats: list[str]


class ComparedSessions(Record, frozen=True, kw_only=True):
    """`report --diff A B --json`."""

    schema: int = SCHEMA
    sessions: list[SessionData]  # A, B
    comparison: SideBySide


class ComparedAnalysis(Analysis, frozen=True, kw_only=True):
    """`analyze A --diff B --json`: both traces as of `analyze`, and how they compare."""

    comparison: SideBySide


class FigureGroup(NamedTuple):
    """Figures of one side by their names."""

    name: str
    unit: Unit
    figures: Mapping[str, float | None]
    less: bool | Collection[str] = ()  # those of which less is better; True: of all


def compare_sessions(before: SessionData, after: SessionData) -> ComparedSessions:
    """Both, and how they compare."""
    both = (before, after)
    names = [
        f"{each.session}: {each.snapshot.job.script if each.snapshot.job is not None else 'job'} "
        f"(pid {each.snapshot.pid})"
        for each in both
    ]
    words, figures = map(_session_words, both), map(_session_figures, both)
    comparison = _two("sessions", names, [*words], [*figures], _session_caveats(both))
    return ComparedSessions(sessions=list(both), comparison=comparison)


def compare_traces(before: Analysis, after: Analysis) -> ComparedAnalysis:
    """Both, and how they compare: steps in time; what is known of the whole trace alone as shares.

    Raises:
        UsageError: one of them is not one trace of one device.
    """
    both = [_only(before), _only(after)]
    words = [{"GPU": each.gpu or "unknown", **_judged(each)} for each in both]
    figures = map(_trace_figures, both)
    comparison = _two("traces", [each.file for each in both], words, [*figures], _trace_caveats(*both))
    return ComparedAnalysis(traces=both, comparison=comparison)


def _two(
    kind: Literal["sessions", "traces"],
    names: Sequence[str],
    words: Sequence[Mapping[str, str]],
    figures: Sequence[Sequence[FigureGroup]],
    caveats: Iterator[str],
) -> SideBySide:
    ours, theirs = words
    return SideBySide(
        kind=kind,
        before=names[0],
        after=names[1],
        words=[
            ComparedWord(name=name, before=ours.get(name, NOT_TRIED), after=theirs.get(name, NOT_TRIED))
            for name in list(dict.fromkeys([*ours, *theirs]))[:MOST_WORDS]
        ],
        figures=[each for pair in zip(*figures, strict=True) for each in _compared(*pair)],
        caveats=[*caveats, NO_AB_TEST],
    )


def _compared(ours: FigureGroup, theirs: FigureGroup) -> list[ComparedFigure]:
    """What both sides name and one has measured. A name that one of them lacks took no share."""
    if ours.unit == "share":
        names, none = list(dict.fromkeys([*ours.figures, *theirs.figures])), 0.0
    else:
        names, none = [each for each in ours.figures if each in theirs.figures][:MOST_KERNELS], None
    found = [
        ComparedFigure(
            group=ours.name,
            name=plain(name)[:NAME_LETTERS],  # of a kernel: several may read the same
            unit=ours.unit,
            before=ours.figures.get(name, none),
            after=theirs.figures.get(name, none),
            less_is_better=True if ours.less is True or (ours.less and name in ours.less) else None,
        )
        for name in names
    ]
    return [each for each in found if (each.before, each.after) != (None, None)]


def _session_words(session: SessionData) -> dict[str, str]:
    """What limits it, what was kept, how it ended, and what each remedy has achieved."""
    tuned = session.tuned
    trials = session.trials if tuned is None else tuned.trials
    if tuned is None or not tuned.kept:
        kept = "not tuned" if tuned is None else "nothing"
    else:
        gain = gain_words(tuned.speedup, tuned.interval)
        kept = f"{', '.join(tuned.kept)}: {gain if tuned.interval is not None else 'no speed-up claimed'}"
    tried = {trial_label(one): gain_words(one.achieved, one.interval) for one in trials}
    return {**_judged(session.snapshot), "kept": kept, "ended": session.ending, **tried}


def _session_figures(session: SessionData) -> list[FigureGroup]:
    found = session.snapshot
    steps = {name: getattr(found.step_ns, name) for name in ("median", "mean", "p99")}
    phases, shares = (
        {name.replace("_", " "): value for name, value in msgspec.structs.asdict(each).items()}
        for each in (found.phases_ns, found.shares)
    )
    return [
        FigureGroup("step", "ns", steps, less=True),
        FigureGroup("phases", "ns", phases, less=True),
        FigureGroup("shares of the step", "share", shares),
        FigureGroup("autobrrr", "share", {"own cost": found.cost.session_share}, less=True),
    ]


def _trace_figures(trace: TraceAnalysis) -> list[FigureGroup]:
    """Of the device: in whole steps that are not early ones, as shares of its span, by kernel."""
    (device,) = trace.devices
    whole = [each for each in trace.steps if each.devices and not (each.early or each.partial)]
    busy = [each.devices[0].busy_ns for each in whole]
    idle = [sum(msgspec.structs.astuple(each.devices[0].idle)) for each in whole]
    steps = {
        "median": trace.step_ns.median,
        "of it busy": median(busy) if busy else None,
        "of it idle": median(idle) if idle else None,
    }
    times = {
        "busy": device.busy_ns,
        "idle": device.idle_ns,
        "communication, exposed": device.exposed_communication_ns,
        "copies, exposed": device.exposed_memcpy_ns,
    }
    causes = {said: ns for ns, _, said in idle_causes(device)}
    kinds = {name: kind.ns for name, kind in device.kernels.items()}
    kernels = {each.name: each.median_ns for each in device.top_kernels}
    counted = {
        "kernels": device.kernel_count,
        "launches": device.launches,
        "steps measured": trace.step_ns.count,
    }

    def of_span(what: str, times_ns: Mapping[str, int]) -> FigureGroup:
        shares = {name: ns / max(device.span_ns, 1) for name, ns in times_ns.items()}
        return FigureGroup(what, "share", shares, LESS_IS_BETTER)

    return [
        FigureGroup("step", "ns", steps, less=("median", "of it idle")),
        of_span("device, share of its time", times),
        of_span("idle by cause, share of all time", causes),
        of_span("kernels by class, share of all time", kinds),
        FigureGroup("in the whole trace", "count", counted),
        FigureGroup("one kernel, median", "ns", kernels, less=True),
    ]


def _judged(found: Diagnosis | TraceAnalysis) -> dict[str, str]:
    """What limits it, and its regime."""
    unknown = found.limit == "unknown"
    limit = "unknown" if unknown else limit_words(found.limit, found.limit_confidence)
    return {"limit": limit, "regime": f"{found.regime} ({found.confidence})"}


def _session_caveats(both: Sequence[SessionData]) -> Iterator[str]:
    """What differs beside the job's speed."""
    jobs = [each.snapshot.job for each in both]
    if None not in jobs:
        for name in ("script", "argv", "torch", "python", "threads", "device", "world_size"):
            one, other = (getattr(job, name) for job in jobs)
            if one != other:
                yield f"The jobs differ in {name.replace('_', ' ')}: {one}, then {other}."
    for session in both:
        takers = session.timeline.contention
        if takers:
            yield f"In {session.session} others took CPU time from the job: {takers[0].command} most."
        if session.snapshot.provisional:
            yield f"The verdict of {session.session} is provisional: the machine was too busy to be sure."


def _only(analysis: Analysis) -> TraceAnalysis:
    if len(analysis.traces) != 1 or len(analysis.traces[0].devices) != 1:
        raise UsageError(
            "--diff compares one trace of one device with another", "name the trace of one rank of each run"
        )
    return analysis.traces[0]


def _trace_caveats(before: TraceAnalysis, after: TraceAnalysis) -> Iterator[str]:
    if before.gpu != after.gpu:
        yield f"The GPUs differ: {before.gpu or 'unknown'}, then {after.gpu or 'unknown'}."
    if before.rank != after.rank:
        ranks = ["unknown" if each.rank is None else str(each.rank) for each in (before, after)]
        yield f"The ranks differ: {ranks[0]}, then {ranks[1]}."
    for trace in (before, after):
        if trace.step_ns.count < 2:
            counted = "no step" if trace.step_ns.count == 0 else "1 step"
            yield f"{trace.file} shows {counted}: its step time says little."


def comparison_page(compared: ComparedSessions | ComparedAnalysis) -> pm.ReportPage:
    """Both beside each other."""
    found = compared.comparison
    both = [pm.Line(name="before", text=found.before), pm.Line(name="after", text=found.after)]
    words_of = [(each.name, each.before, each.after) for each in found.words]
    median = [each for each in found.figures if each.group == "step" and each.name == "median"]
    groups = dict.fromkeys(each.group for each in found.figures)
    return pm.ReportPage(
        kind="two sessions" if found.kind == "sessions" else "two traces",
        title="Before and after",
        about=[],
        sections=[
            pm.section(
                "Step", pm.LineGroup(lines=both, shape="facts"), *map(_head, median), pm.listed(found.caveats)
            ),
            pm.section("", pm.table("What was found", ("", "-before", "-after"), words_of)),
            *(
                pm.section("", _table(name, [one for one in found.figures if one.group == name]))
                for name in groups
            ),
        ],
        data=compared,
        file="comparison.json",
    )


def _head(step: ComparedFigure) -> pm.Line:
    both = " → ".join(step.said(value) for value in (step.before, step.after))
    changed = "the same time" if step.is_same else f"{step.change} the time"
    tone: Tone = step.side or "head"
    return pm.Line(text=both, note=f"{changed}, median", tone=tone)


def _table(group: str, figures: list[ComparedFigure]) -> pm.PageTable:
    most = max([value for each in figures for value in (each.before, each.after) if value], default=1.0)
    rows = []
    for each in figures:
        row = [pm.Cell(text=each.name)]
        for value, hue in ((each.before, "other"), (each.after, "memory")):
            row += [pm.figure(each.said(value), value), pm.bar((value or 0.0) / most, hue)]
        rows.append([*row, pm.Cell(text=each.change, sort=each.ratio, tone=each.side)])
    return pm.PageTable(
        title=group, heads=("", "#before", "~-", "#after", "~-", "#after / before"), rows=rows
    )
