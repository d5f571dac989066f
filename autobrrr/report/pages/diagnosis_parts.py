"""A diagnosis as parts of a page, the same on every medium: verdict, ranks, signals, advice, windows, sweeps.

Sections have titles for a page; on a screen the titles of their tables stand for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import msgspec

from autobrrr.quantities import duration, share, size
from autobrrr.readable import readable
from autobrrr.records import (
    Advice,
    BatchProbe,
    Diagnosis,
    Evidence,
    LateRank,
    Phases,
    ProfilerWindow,
    RankLine,
    Record,
    SizeSweep,
    verdict_head,
)
from autobrrr.records.busy_words import decide_words
from autobrrr.records.rank_records import cause_words, straggler_words
from autobrrr.records.verdict_records import in_phase
from autobrrr.records.wire_answers import Explained
from autobrrr.report import page_model as pm
from autobrrr.report.page_model import Tone

MOST_EVIDENCE = 3
LEAST_SHARE = 0.005
SHARE_OF = "share of "  # how the unit of a share begins


def diagnosis_sections(found: Diagnosis) -> list[pm.Section]:
    """The verdict, then all that stands behind it and follows from it."""
    carry, facts = carrying(found), list(verdict_lines(found))
    ranked = sorted(found.evidence, key=lambda each: (each not in carry, each.value is None))
    several = found.ranks if found.ranks is not None and len(found.ranks) > 1 else []
    decide = pm.Line(name="to decide", text=decide_words(found), tone="accent") if found.decide_with else None
    return pm.filled(
        pm.section(
            "Verdict",
            pm.Line(text=verdict_head(found), tone="head"),
            pm.LineGroup(lines=facts, shape="facts") if facts else None,
            *step_bars(found),
            ledger_table(found),
        ),
        pm.section("Ranks", ranks_table(several, found.straggler, "ranks")),
        pm.section("Signals", evidence_table(ranked), on="page"),
        pm.section("Batch probe", *_probe(found.batch_probe)),
        pm.section("Other sizes", *(() if found.sweep is None else sweep_parts(found.sweep))),
        pm.section("Remedies", _advice(found.advice), decide),
    )


def glossary() -> Mapping[str, Explained]:
    """What signals, regimes, remedies and other words mean, by name."""
    from autobrrr.diagnosis.glossary import EXPLANATIONS  # not for a first paint: it brings numpy

    return EXPLANATIONS


def verdict_lines(found: Diagnosis) -> Iterator[pm.Line]:
    """Below the head: the slowest line, what the regime adds, the step, what changes, the ranks."""
    steps, among = found.step_ns, ranks_words(found)
    if found.where:
        yield pm.Line(name="your line", text=readable(found.where[0].words))
    if found.adds:
        yield pm.Line(name="regime" if found.regime == "unknown" else found.regime, text=found.adds)
    if steps.median is not None:
        said = f"{duration(steps.median)} median, {duration(steps.mean)} mean, {duration(steps.p99)} p99"
        yield pm.Line(name="step", text=f"{said} of {steps.count} steps")
    for each in found.trends:
        yield pm.Line(name="over time", text=readable(each.words), tone="warn")
    if found.memory_words:
        yield pm.Line(name="memory", text=found.memory_words)
    if among is not None:
        late = found.straggler is not None and found.straggler.rank is not None
        yield pm.Line(name="ranks", text=among, tone="worse" if late else "")


def step_bars(found: Diagnosis) -> list[pm.Bar]:
    """Where the step goes; phases say more where operators were not told apart."""
    spent = parts(found.shares, LEAST_SHARE)
    phases = [each for each in phase_shares(found.phases_ns) if each[1] > 0]
    bars = [pm.Bar(title="shares", parts=spent), pm.Bar(title="phases", parts=phases)]
    return [each for each in (bars if found.shares.overhead is not None else bars[::-1]) if each.parts]


def parts(record: Record, least: float = 0.0) -> list[tuple[str, float]]:
    """The measured fields of a record of figures, largest first."""
    found = [(name, value) for name, value in _measured(record) if value > least]
    return sorted(found, key=lambda part: -part[1])


def phase_shares(phases: Phases) -> list[tuple[str, float]]:
    """Each measured phase as a share of their sum, in the order of a step.

    What is not timed apart (forward and optimizer in compiled code) lies in `other`, whose name says so.
    """
    measured = _measured(phases)
    whole, names = sum(value for _, value in measured), [name for name, _ in measured]
    inside = [name for name in ("forward", "optimizer") if name not in names]
    other = f"other with {' and '.join(inside)}" if inside else "other"
    return [(other if name == "other" else name, value / whole) for name, value in measured if whole > 0]


def _measured(record: Record) -> list[tuple[str, float]]:
    fields = msgspec.structs.asdict(record)
    return [(name.replace("_", " "), value) for name, value in fields.items() if value is not None]


def ledger_table(found: Diagnosis) -> pm.PageTable:
    """Who has the step's time, in which phase, at which line; a function is named at its first line alone."""
    rows: list[Sequence[pm.Value]] = []
    named: dict[tuple[str, str], str] = {}
    for row in (row for row in found.ledger if row.share >= LEAST_SHARE):
        line, _, function = (where := readable(row.where or "")).rpartition(" ")
        first = named.setdefault((line.rpartition(":")[0], function), line) == line
        rows.append((row.share, in_phase(row.kind, row.phase), where if first else line))
    return pm.table("the step, by lines", ("share:share", "of what", "where"), rows)


def ranks_words(found: Diagnosis) -> str | None:
    """Which rank the others wait for, and why, in a sentence; None for a job of one rank."""
    if found.straggler is not None:
        return straggler_words(found.straggler)
    if found.ranks is None:
        return None
    if len(found.ranks) == 1:
        return "one has a session: which is slowest shows where several have (autobrrr diagnose LAUNCHER)"
    return "which is slowest is not known: their steps were not compared (autobrrr diagnose LAUNCHER)"


def ranks_table(
    lines: Sequence[RankLine], straggler: LateRank | None = None, title: str = ""
) -> pm.PageTable:
    """Each rank's step; its own work and waits where collectives were timed; what makes it late."""
    heads = ("#rank", "~#pid", "~regime", "step:ns", "own work:ns", "waits:ns", "longer in", "cause")
    return pm.table(title, heads, [_rank_values(line, straggler) for line in lines])


def _rank_values(line: RankLine, straggler: LateRank | None) -> list[pm.Value]:
    times, regime = line.collectives, str(line.regime or "-")
    if line.confidence == "low" and line.regime not in (None, "unknown", "mixed"):
        regime += " (low)"
    own, waits = (None, None) if times is None else (times.own_ns, times.waits_ns)
    late = straggler is not None and straggler.rank is not None and straggler.rank == line.rank
    cause = cause_words(straggler) if late and straggler is not None else "slowest" if line.slowest else ""
    return [
        "?" if line.rank is None else str(line.rank),
        "-" if line.pid is None else str(line.pid),
        *(regime, line.step_ns, own, waits, (line.phase or "").replace("_", " ")),
        pm.Cell(text=line.why or cause, tone="worse" if late else ""),
    ]


def evidence_table(evidence: Sequence[Evidence]) -> pm.PageTable:
    """What each signal names or excludes, its figure, what it saw; what several saw is said once."""
    first: dict[str, str] = {}
    rows = []
    for each in evidence:
        same = first.setdefault(each.note, each.signal) if each.value is None else each.signal
        note = each.note if same == each.signal else f"as {same.replace('_', ' ')}"
        seen = pm.Cell(text=note, tone="muted" if each.value is None else "")
        rows.append((each.signal.replace("_", " "), _says(each), _figure(each), seen))
    return pm.table(
        "evidence: what each signal says",
        ("signal", "says", "-figure", "-note"),
        rows,
        keys=[each.signal for each in evidence],
        more={each.signal: _more(each) for each in evidence},
    )


def _more(evidence: Evidence) -> list[pm.Line]:
    says = _says(evidence)
    said = "names nothing, excludes nothing" if says.text == "-" else says.text
    return [
        pm.Line(name="says", text=said, tone=says.tone),
        pm.Line(name="unit", text=evidence.unit if evidence.value is not None else ""),
        pm.Line(name="excludes", text=", ".join(evidence.against)),
        pm.Line(name="note", text=evidence.note),
    ]


def _says(evidence: Evidence) -> pm.Cell:
    """What a signal names or excludes."""
    if evidence.says is not None:
        return pm.Cell(text=evidence.says, tone="better")
    tone: Tone = "" if evidence.against else "muted"
    return pm.Cell(text=f"not {evidence.against[0]}" if evidence.against else "-", tone=tone)


def _figure(evidence: Evidence) -> pm.Cell:
    if evidence.value is None:
        return pm.Cell(text="-")
    if evidence.unit.startswith("share"):
        said = share(evidence.value)
        of = evidence.unit.removeprefix(SHARE_OF)
        return pm.Cell(text=f"{said} of {of}", short=said, sort=evidence.value)
    said = duration(evidence.value) if evidence.unit == "ns" else f"{evidence.value:.3g} {evidence.unit}"
    return pm.Cell(text=said, sort=evidence.value)


def carrying(found: Diagnosis) -> list[Evidence]:
    """The evidence that carries the verdict; where there is none, what was measured at all."""
    named = [each for each in found.evidence if each.says == found.regime]
    rest = [each for each in found.evidence if each.value or each.against]
    return (named or sorted(rest, key=lambda each: not each.against))[:MOST_EVIDENCE]


def signals_words(named: Diagnosis) -> str:
    """Who carries the verdict."""
    names = [each.signal.replace("_", " ") for each in named.evidence if each.says == named.regime]
    if not names or named.regime == "unknown":
        return ""
    return f"{'1 signal says' if len(names) == 1 else f'{len(names)} signals say'} so: {', '.join(names)}"


def _probe(probe: BatchProbe) -> Iterator[pm.Line | pm.PageTable]:
    """Measured step times against the batch, and the line that was fitted to them."""
    if probe.status == "ok" and probe.points:
        longest = max(point.step_ns for point in probe.points)
        rows = [
            (f"{each.batch} samples", each.step_ns, pm.bar(each.step_ns / longest, "memory"))
            for each in probe.points
        ]
        yield pm.table("batch probe: step time against batch size", ("#", ":ns", "~-"), rows)
        found = []
        if probe.fixed_ns is not None and probe.per_sample_ns is not None:
            found.append(f"fixed {duration(probe.fixed_ns)} + {duration(probe.per_sample_ns)} a sample")
        if probe.ratio_2x is not None:
            bounds = probe.ratio_2x_interval
            said = "" if bounds is None else f" [{bounds[0]:.2f}, {bounds[1]:.2f}]"
            found.append(f"twice the batch takes {probe.ratio_2x:.2f}{said} times as long")
        yield from [pm.Line(text="; ".join(found))] * bool(found)
    if probe.why or probe.status != "ok":
        yield pm.Line(name="batch probe", text=probe.why or "not measured", tone="muted")


def _advice(advice: Sequence[Advice]) -> pm.PageTable:
    return pm.table(
        "remedies: what the diagnosis advises, and what it predicts",
        ("remedy", "predicted:factor", "takes effect", "class", "why"),
        [(one.remedy, one.expected, one.reach.replace("_", " "), one.class_, one.why) for one in advice],
    )


MOST_OPS = 20
MOST_CAUSES = 8
MOST_POINTS = 12
FULL = 0.97  # of the span in which a device is busy


def window_parts(window: ProfilerWindow) -> Iterator[pm.Line | pm.PageTable]:
    """How long its steps took, why each device was idle, the slowest operators."""
    if window.status != "ok":
        yield pm.Line(name="window", text=f"none: {window.why}")
        return
    profiled, plain, after = (
        median(each) if each else None
        for each in (window.profiled_step_ns, window.plain_step_ns, window.after_step_ns)
    )
    longer = f" ({profiled / plain:.2f} times a plain step)" if plain and profiled else ""
    took = f"{len(window.profiled_step_ns)} steps of {duration(profiled)}{longer}"
    stood = "" if window.stall_ns is None else f"; training stood still for {duration(window.stall_ns)}"
    yield pm.Line(name="window", text=took + stood)
    if plain and after:
        yield pm.Line(name="after", text=f"steps since take {after / plain:.2f} times what they took before")
    if window.cupti == "attached":
        yield pm.Line(name="CUPTI", text="stays in the job: launches are slower from here on", tone="warn")
    shares = {
        "in operators": window.inside_share,
        "in compiled graphs": window.compiled_share,
        "waiting for the loader": window.loader_share,
    }
    inside = [f"{name} {share(part)}" for name, part in shares.items() if part is not None]
    if inside:
        yield pm.Line(name="thread", text=", ".join(inside))
    for gaps in window.gaps:
        idle_ns = max(0, gaps.span_ns - gaps.busy_ns)
        idle = share(idle_ns / gaps.span_ns) if gaps.span_ns else "-"
        causes = sorted(gaps.idle_by_cause_ns.items(), key=lambda each: -each[1])[:MOST_CAUSES]
        parts = [(cause.replace("_", " "), ns / (idle_ns or 1), ns) for cause, ns in causes]
        yield pm.table(
            f"{gaps.device}: idle {idle} of {duration(gaps.span_ns)}, by cause",
            ("", "-", ":share", ":ns"),
            [(named, pm.bar(part, "host"), part, ns) for named, part, ns in parts],
        )
    if window.by_op:
        if any(gaps.span_ns and gaps.busy_ns / gaps.span_ns >= FULL for gaps in window.gaps):
            full = "the device is busy throughout: launches wait in operators for its queue"
            yield pm.Line(text=full, tone="muted")
        ops = [(op.op, op.count, op.self_ns) for op in window.by_op]
        yield operators_table(ops, profiled, "own time under the profiler")


def operators_table(
    ops: Sequence[tuple[str, float, float]], step_ns: float | None, clock: str
) -> pm.PageTable:
    """Operators of an average step.

    Args:
        ops: Name, calls and nanoseconds in a step.
        clock: What the time is.
    """
    whole, longest = step_ns or sum(ns for _, _, ns in ops) or 1.0, max([1.0, *(ns for _, _, ns in ops)])
    a_call = {op: duration(ns / calls) if calls else "" for op, calls, ns in ops}
    return pm.table(
        f"slowest operators in a step: {clock}",
        ("operator", "calls:count", "of step:share", "#-time:ns", "~-"),
        [(op, round(calls), ns / whole, ns, pm.bar(ns / longest, "memory")) for op, calls, ns in ops],
        most=MOST_OPS,
        keys=[op for op, _, _ in ops],
        more={op: [pm.Line(name="a call", text=text)] for op, text in a_call.items()},
        tall=1,
    )


def sweep_parts(sweep: SizeSweep) -> Iterator[pm.Line | pm.PageTable]:
    """What a step takes at other sizes of its data, and what memory."""
    along = f"sweep of the {sweep.along}"
    if sweep.status != "ok" or sweep.size is None:
        yield pm.Line(name=along, text=f"none: {sweep.why}")
        return
    now_ns = next((point.step_ns for point in sweep.points if point.size == sweep.size), None)
    rows = []
    for each in sweep.points:
        times = each.step_ns / now_ns if now_ns else None
        work = None if times is None else each.size / sweep.size / times
        rows.append((each.size, each.step_ns, times, work))
    heads = (f"{sweep.along}:count", "step:ns", "the step:factor", "the work a second:factor")
    yield pm.table(f"{along}, {sweep.size} now", heads, rows, most=MOST_POINTS)
    for note in sweep.notes:
        yield pm.Line(text=note)
    memory = sweep.memory
    if memory is not None:
        text = f"memory of a step: about {size(memory.peak_bytes)} at its peak, "
        text += f"{size(memory.peak_2x_bytes)} at twice the batch"
        if memory.largest_batch is not None:
            text += f"; about {memory.largest_batch} samples fit into {size(memory.free_bytes or 0)}"
        yield pm.Line(text=text)
