"""Two sessions, or two traces, side by side: figures of both, and why they may not be comparable.

Two runs at two times are no A/B test: nothing here claims a speed-up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median
from typing import Literal, TypeAlias

import msgspec

from autobrrr.errors import UsageError
from autobrrr.quantities import duration, share
from autobrrr.records import SCHEMA, Diagnosis, Record, Trial, limit_words
from autobrrr.records.gain_words import gain_words
from autobrrr.report import page_model as pm
from autobrrr.report.page_model import Tone
from autobrrr.report.pages.trace_page import idle_causes, plain
from autobrrr.report.pages.tuning_parts import trial_label
from autobrrr.report.past_session import SessionData
from autobrrr.trace.trace_records import Analysis, DeviceAnalysis, TraceAnalysis

NO_AB_TEST = "These are two runs at two times, not an A/B test: what the machine did besides differs, too."
SAME = 0.02  # figures that differ by less count as the same
SAME_POINTS = 0.005  # the same of shares
MOST_TRIALS, MOST_KERNELS = 8, 12
NAME_LETTERS = 60
LESS_IS_BETTER = ("idle", "communication, exposed", "copies, exposed")
Unit: TypeAlias = Literal["ns", "share", "count"]
Figures: TypeAlias = Mapping[str, float | None]


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


def compare_sessions(before: SessionData, after: SessionData) -> ComparedSessions:
    """Both, and how they compare."""
    both, found = (before, after), [each.snapshot for each in (before, after)]
    names = [
        f"{each.session}: {each.snapshot.job.script if each.snapshot.job is not None else 'job'} "
        f"(pid {each.snapshot.pid})"
        for each in both
    ]
    trials = [
        {trial_label(one): gain_words(one.achieved, one.interval) for one in _tried(each)} for each in both
    ]
    words = [{**_judged(each.snapshot), "kept": _kept(each), "ended": each.ending} for each in both]
    for remedy in list(dict.fromkeys([*trials[0], *trials[1]]))[:MOST_TRIALS]:
        for told, tried in zip(words, trials, strict=True):
            told[remedy] = tried.get(remedy, "not tried")
    steps = [{name: getattr(each.step_ns, name) for name in ("median", "mean", "p99")} for each in found]
    cost = [{"own cost": each.cost.session_share} for each in found]
    figures = [
        *_group("step", "ns", steps, True),
        *_group("phases", "ns", _measured([each.phases_ns for each in found]), True),
        *_group("shares of the step", "share", _measured([each.shares for each in found])),
        *_group("autobrrr", "share", cost, True),
    ]
    comparison = _two("sessions", names, words, figures, _session_caveats(both))
    return ComparedSessions(sessions=list(both), comparison=comparison)


def compare_traces(before: Analysis, after: Analysis) -> ComparedAnalysis:
    """Both, and how they compare: steps in time; what is known of the whole trace alone as shares.

    Raises:
        UsageError: one of them is not one trace of one device.
    """
    both = [_only(before), _only(after)]
    devices = [each.devices[0] for each in both]
    idle = [{told: ns for ns, _, told in idle_causes(each)} for each in devices]
    kernels = [{name: kind.ns for name, kind in each.kernels.items()} for each in devices]
    counted = [
        {"kernels": device.kernel_count, "launches": device.launches, "steps measured": each.step_ns.count}
        for each, device in zip(both, devices, strict=True)
    ]
    figures = [
        *_group("step", "ns", [_step_medians(each) for each in both], ("median", "of it idle")),
        *_of_span("device, share of its time", devices, [_device_times(each) for each in devices]),
        *_of_span("idle by cause, share of all time", devices, idle),
        *_of_span("kernels by class, share of all time", devices, kernels),
        *_group("in the whole trace", "count", counted),
        *_kernels(*devices),
    ]
    words = [{"GPU": each.gpu or "unknown", **_judged(each)} for each in both]
    comparison = _two("traces", [each.file for each in both], words, figures, _trace_caveats(*both))
    return ComparedAnalysis(traces=both, comparison=comparison)


def _two(
    kind: Literal["sessions", "traces"],
    names: Sequence[str],
    words: Sequence[Mapping[str, str]],
    figures: list[ComparedFigure],
    caveats: Iterator[str],
) -> SideBySide:
    before, after = words
    return SideBySide(
        kind=kind,
        before=names[0],
        after=names[1],
        words=[ComparedWord(name=name, before=said, after=after[name]) for name, said in before.items()],
        figures=figures,
        caveats=[*caveats, NO_AB_TEST],
    )


def _group(
    group: str, unit: Unit, both: Sequence[Figures], less: bool | Collection[str] = ()
) -> Iterator[ComparedFigure]:
    """Figures of both by their names; `less`: those of which less is better, True: of all."""
    for name, before in both[0].items():
        yield ComparedFigure(
            group=group,
            name=name,
            unit=unit,
            before=before,
            after=both[1][name],
            less_is_better=True if less is True or (less and name in less) else None,
        )


def _measured(both: Sequence[Record]) -> list[Figures]:
    """The fields that either of two records has measured."""
    ours, theirs = (msgspec.structs.asdict(each) for each in both)
    known = [name for name in ours if ours[name] is not None or theirs[name] is not None]
    return [{name.replace("_", " "): each[name] for name in known} for each in (ours, theirs)]


def _judged(found: Diagnosis | TraceAnalysis) -> dict[str, str]:
    """What limits it, and its regime."""
    unknown = found.limit == "unknown"
    limit = "unknown" if unknown else limit_words(found.limit, found.limit_confidence)
    return {"limit": limit, "regime": f"{found.regime} ({found.confidence})"}


def _tried(session: SessionData) -> list[Trial]:
    return session.tuned.trials if session.tuned is not None else session.trials


def _kept(session: SessionData) -> str:
    tuned = session.tuned
    if tuned is None:
        return "not tuned"
    if not tuned.kept:
        return "nothing"
    gain = "no speed-up claimed" if tuned.interval is None else gain_words(tuned.speedup, tuned.interval)
    return f"{', '.join(tuned.kept)}: {gain}"


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


def _step_medians(trace: TraceAnalysis) -> Figures:
    """Of the device in whole steps that are not early ones; ns."""
    steps = [each for each in trace.steps if each.devices and not (each.early or each.partial)]
    busy = [each.devices[0].busy_ns for each in steps]
    idle = [sum(msgspec.structs.astuple(each.devices[0].idle)) for each in steps]
    return {
        "median": trace.step_ns.median,
        "of it busy": median(busy) if busy else None,
        "of it idle": median(idle) if idle else None,
    }


def _device_times(device: DeviceAnalysis) -> dict[str, int]:
    return {
        "busy": device.busy_ns,
        "idle": device.idle_ns,
        "communication, exposed": device.exposed_communication_ns,
        "copies, exposed": device.exposed_memcpy_ns,
    }


def _of_span(
    group: str, devices: Sequence[DeviceAnalysis], times_ns: Sequence[Mapping[str, int]]
) -> Iterator[ComparedFigure]:
    """Shares of each device's span; a name that one of them lacks took none."""
    names = dict.fromkeys([*times_ns[0], *times_ns[1]])
    shares = [
        {name: times.get(name, 0) / max(each.span_ns, 1) for name in names}
        for times, each in zip(times_ns, devices, strict=True)
    ]
    yield from _group(group, "share", shares, LESS_IS_BETTER)


def _kernels(before: DeviceAnalysis, after: DeviceAnalysis) -> Iterator[ComparedFigure]:
    """Those that are among the longest of both: median time of one."""
    theirs = {each.name: each for each in after.top_kernels}
    both = [each for each in before.top_kernels if each.name in theirs]
    for each in both[:MOST_KERNELS]:
        name = plain(each.name)[:NAME_LETTERS]
        medians = [{name: each.median_ns}, {name: theirs[each.name].median_ns}]
        yield from _group("one kernel, median", "ns", medians, True)


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
                "Step",
                pm.LineGroup(lines=both, shape="facts"),
                *map(_head, median),
                pm.listed(found.caveats),
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
