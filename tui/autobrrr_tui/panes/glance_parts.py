"""What stands on the first screen, part by part: each a few rows for so many cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.renderables.digits import Digits

from autobrrr.quantities import clock, duration, share, size
from autobrrr.records import Advice, Diagnosis, NoClaim, Phases, RankLine, TuneProgress, Tuning, limited_by
from autobrrr.records.busy_words import BUSY_AT, busy_words, takers_named, waiting_share
from autobrrr.records.gain_words import CLASS_WORDS, SURE, class_badge, factor_words, gain_words
from autobrrr.records.rank_records import late_words
from autobrrr.report import text_bars
from autobrrr.report.page_model import Bar, Cell, PageTable, Tone
from autobrrr.report.page_rows import bar_rows, table_rows
from autobrrr.report.pages.diagnosis_parts import phase_shares, signals_words
from autobrrr.report.text.next_step import STARTED, at_next_start, to_start_with, to_try
from autobrrr.report.text_bars import sparkline
from autobrrr.report.text_rows import Piece, Row, clipped, piece, row, shortened, wrapped
from autobrrr_tui.panes.job_header import activity
from autobrrr_tui.panes.tuning_pane import BEGINS, DARING, lines, table
from autobrrr_tui.view_state import ScreenStanding, View

ROOMY = 52  # cells from which on advice says its class and when it takes effect
WITH_IT, WITH_ALL = "with it against without it", "all kept together against none"
DOUBT = {"high": "●●●", "medium": "●●○", "low": "●○○"}
DEVICE: Mapping[str, Callable[[Any], str]] = {
    "name": str,
    "gpu_util_share": lambda value: f"GPU-Util {share(value)}",
    "sm_active_share": lambda value: f"SMs active {share(value)}",
    "tensor_active_share": lambda value: f"tensor cores active {share(value)}",
    "dram_active_share": lambda value: f"memory bandwidth {share(value)}",
    "memory_used_bytes": lambda value: f"memory {size(value)}",
    "memory_total_bytes": lambda value: f"of {size(value)}",
    "job_memory_bytes": lambda value: f"this job {size(value)}",
    "power_w": lambda value: f"power {value:.0f} W",
    "temperature_c": lambda value: f"temperature {value:.0f} C",
    "sm_clock_mhz": lambda value: f"clock {value} MHz",
    "sm_clock_max_mhz": lambda value: f"of {value} MHz",
    "throttled_by": lambda value: f"throttled by {', '.join(value)}" if value else "",
    "other_processes": lambda value: f"other processes {value}" if value else "",
}


def verdict(view: View, room: int, most: int = 3, *, brief: bool = False) -> list[Row]:
    """Who limits the step, with what, how sure, by which signals; what was known stays, with its age.

    In brief: without what the regime adds to who limits the step.
    """
    found = view.snapshot
    if found is None:
        return []
    named, age = found, ""
    if view.judged is not None and found.regime == "unknown" and found.limit == "unknown":
        named = view.judged
        passed = (found.t_ns or 0) - (named.t_ns or 0)
        age = f"   {clock(passed)} ago" if passed > 0 else ""
    strong, plain = ("muted", "muted") if age else ("head", "")
    rows: list[Row] = []
    if named.limit != "unknown":
        doubt = (*_doubt(named.limit_confidence, named.provisional), piece(age))
        first, *others = wrapped(limited_by(named), room - sum(len(text) for text, _, _ in doubt), most)
        rows.append(row(piece(first, strong), *doubt))
        rows += [row(piece(line, plain)) for line in others]
    if named.where and not age:
        rows += [row(piece(line, plain)) for line in wrapped(f"at {named.where[0].words}", room, 2 - brief)]
    late = "" if found.straggler is None else late_words(found.straggler)
    rows += [row(piece(clipped(late, room), "worse"))] * bool(late)
    said = named.reason if named.limit == "unknown" else named.adds
    repeats = (named.regime, named.confidence) == (named.limit, named.limit_confidence)
    if named.limit != "unknown" and named.regime not in ("unknown", "mixed") and not repeats:
        said = f"{named.regime} ({named.confidence})" + (f": {said}" if said else "")
    tone = "muted" if view.regime == "measuring" or age else ""
    if named.limit == "unknown" or not (age or brief):
        rows += [row(piece(line, tone)) for line in wrapped(said, room, most - bool(late))]
    if age:
        now = "measuring again" if view.regime == "measuring" else f"now: {found.reason}"
        rows += [row(piece(line)) for line in wrapped(now, room, 2)]
    return rows


def _doubt(confidence: str, provisional: bool) -> tuple[Piece, ...]:
    return (
        piece(f"   {DOUBT[confidence]} {confidence} confidence", "accent"),
        piece(" provisional" if provisional else "", "warn"),
    )


def grounds(found: Diagnosis, room: int) -> list[Row]:
    """Which signals carry the verdict, and what would decide an open one."""
    said = signals_words(found)
    rows = [row(piece(clipped(said, room), "muted"))] if said else []
    if found.decide_with and found.state not in ("tracing", "probing", "watching"):
        rows.append(row(piece(clipped(f"to decide: {found.decide_with}", room), "accent")))
    return rows


def machine(found: Diagnosis) -> list[Row]:
    """That nobody takes the CPUs from this job; a banner tells who does."""
    delay = waiting_share(found)
    return [] if delay is None or delay >= BUSY_AT else [row(piece("machine quiet", "muted"))]


class GainPart(NamedTuple):
    """What the first screen says of gains: under which head, and whose figures they are."""

    rows: list[Row]
    head: str = "gain"
    note: str = ""
    proven: str = ""  # the factor alone


def gain(view: View, room: int) -> GainPart:
    """What was gained, or is tried, or could be."""
    found, tuned, now = view.snapshot, view.tuned, view.progress
    if found is None:
        return GainPart([])
    if view.tuning and now is not None:
        whose = WITH_ALL if now.remedy is None else WITH_IT
        return GainPart(_tried_now(now, room), note=f"{whose}, {SURE}" if now.interval else "")
    is_on = tuned is not None and bool(tuned.kept) and set(tuned.kept) <= set(found.active)
    measured = tuned is not None and bool(tuned.kept) and tuned.interval is not None
    note = f"{WITH_ALL}, {SURE}" if measured and (is_on or not found.active) else ""
    if tuned is not None and is_on and tuned.no_claim is NoClaim.CROWDED:
        said = row(piece("faster beside other programs; nothing is claimed", "warn"))
        return GainPart([said, _what_is_on(view, found, room)])
    if tuned is not None and is_on and measured:
        rows = _proven(tuned, found, _what_is_on(view, found, room))
        return GainPart(rows, note=note, proven=factor_words(tuned.speedup))
    if found.active:
        said = row(piece("not measured against the job without it; t does", "muted"))
        return GainPart([said, _what_is_on(view, found, room)])
    if tuned is not None and measured:
        was = f"proven: {gain_words(tuned.speedup, tuned.interval)} with {', '.join(tuned.kept)}"
        return GainPart([row(clipped(was, room)), row(piece("nothing is on now", "muted"))], note=note)
    rows = [row(piece(line, "worse")) for line in wrapped(view.failed, room, 2)] if view.failed else []
    if tuned is not None and not tuned.kept:
        rows.append(row(piece("tuned: no remedy gave a proven gain", "muted")))
    if not found.advice:
        return GainPart(rows or [row(piece("nothing tried yet", "muted"))])
    wide = room >= ROOMY
    advised = [_advised(each, wide=wide) for each in found.advice[:4]]
    listed = PageTable(title="", heads=("-", "#-", "-" if wide else "~-", "-"), rows=advised, tall=1)
    advice = table_rows(listed, room)
    return GainPart([*rows, *advice]) if rows else GainPart(advice, "may gain", "predicted, not tried yet")


def large(factor: str) -> list[Row]:
    """A figure in letters three rows high."""
    segments = Digits(factor).render(Style(bold=True))
    drawn = "".join(each.text for each in segments if isinstance(each, Segment))
    return [row(piece(line, "better")) for line in drawn.splitlines()]


def _advised(advice: Advice, *, wide: bool) -> list[Cell]:
    """Where there is little room, only classes that change the training are named."""
    factor = "" if advice.expected is None else factor_words(advice.expected)
    tone: Tone = "warn" if advice.class_ in DARING else "accent"
    badge = f"[{class_badge(advice.class_)}]" if wide or advice.class_ in DARING else ""
    begins = "" if advice.reach == "live" else BEGINS.get(advice.reach, advice.reach)
    return [
        Cell(text=advice.remedy, tone="accent"),
        Cell(text=f"{factor} predicted" if factor else "", short=factor, tone="accent"),
        Cell(text=begins, tone="muted"),
        Cell(text=badge, tone=tone),
    ]


def _proven(tuned: Tuning, found: Diagnosis, which: Row) -> list[Row]:
    figures: list[Piece] = []
    if tuned.objective == "step_ns" and tuned.baseline and tuned.best:
        figures = [piece(f"{duration(tuned.baseline)} → {duration(tuned.best)}   ", "strong")]
    whose = "" if set(found.active) == set(tuned.kept) else f" with {', '.join(tuned.kept)}"
    gained = piece(gain_words(tuned.speedup, tuned.interval), "better")
    rows = [row(*figures, gained, f"   proven{whose}"), which]
    minutes = 60 * (1 - 1 / tuned.speedup)
    return [*rows, row(f"saves {minutes:.0f} min of every hour of training")] if minutes > 0 else rows


def _classes(view: View) -> list[str]:
    """Classes of what is on, the one that changes most last."""
    on = {each.class_ for each in view.active}
    return [class_ for class_ in CLASS_WORDS if class_ in on]


def _what_is_on(view: View, found: Diagnosis, room: int) -> Row:
    """The remedies that are on and what they do to the results."""
    badges = [
        piece(f"  [{class_badge(each)}]", "warn" if each in DARING else "accent") for each in _classes(view)
    ]
    left = room - sum(len(text) for text, _, _ in badges)
    return row(piece(clipped(f"on: {', '.join(found.active)}", left), "better"), *badges)


def _tried_now(now: TuneProgress, room: int) -> list[Row]:
    cells = max(4, min(30, room - 20))
    part = 0.0 if now.budget_ns <= 0 else min(1.0, now.elapsed_ns / now.budget_ns)
    full = round(part * cells)
    name = now.remedy or "what is kept, all together"
    rows = [row(piece(clipped(f"trying {name}", room), "warn"))]
    if now.achieved is not None:
        pairs = piece(f"   after {now.pairs} A/B pairs", "muted")
        rows.append(row(piece(gain_words(now.achieved, now.interval), "strong"), pairs))
    rows.append(
        row(
            piece("━" * full, "accent"),
            piece("─" * (cells - full), "muted"),
            f" {now.elapsed_ns / 1e9:.0f} of {now.budget_ns / 1e9:.0f} s",
        )
    )
    if now.kept:
        rows.append(row(piece(clipped(f"kept so far: {', '.join(now.kept)}", room), "better")))
    return rows


def step_figures(view: View, room: int) -> Row:
    """`4.18 ms now   4.20 ms median   4.69 ms p99   238 steps/s   of 670 steps`."""
    found = view.snapshot
    aged = found is not None and found.step_ns.median is None and view.timed is not None
    found = view.timed if aged else found  # the last figures stay, dimmed
    if found is None or found.step_ns.median is None:
        steps = 0 if found is None or not found.steps else found.steps
        return row(piece("no step seen yet" if not steps else f"{steps} steps seen", "muted"))
    stats, history = found.step_ns, None if view.details is None or aged else view.details.history
    words = [f"{duration(stats.median)} median", f"{duration(stats.p99)} p99"]
    if history is not None and history.last_ns is not None:
        words.insert(0, f"{duration(history.last_ns)} now")
    median = stats.median or 0
    more = [f"{_rate(1e9 / median)} steps/s"] if median > 0 else []
    if more and found.batch_probe.batch:
        more.append(f"{_rate(found.batch_probe.batch * 1e9 / median)} samples/s")
    more.append(f"of {stats.count} steps")
    while more and len("   ".join([*words, *more])) > room:
        more.pop()
    said = piece("   ".join(words), "muted" if aged else "strong")
    return row(said, piece("".join(f"   {each}" for each in more), "muted"))


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2f}"


def phases(of: Phases, room: int) -> list[Row]:
    """What was timed, as a bar that sums to the step; below it what its parts are."""
    return bar_rows(Bar(title="phases", parts=phase_shares(of)), room)


def phase_words(of: Phases, room: int) -> list[Row]:
    """The phases that take most, as many as fit in a line: a bar without its legend means nothing."""
    known = sorted(phase_shares(of), key=lambda part: -part[1])
    words = [piece(f"{name} {share(part)}", name.replace(" ", "_")) for name, part in known if part > 0]
    return text_bars.flowed(words, room)[:1]


def device_words(found: Diagnosis) -> list[str]:
    """The GPU where there is one, else the processors as the machine shows them."""
    device, host = found.device or {}, found.host
    words = [say(device[name]) for name, say in DEVICE.items() if device.get(name) is not None]
    if host is not None:
        words += [f"CPU {share(host.cpu_share)} of a core"] if host.cpu_share is not None else []
        words += [f"workers {share(host.children_cpu_share)}"] if host.children_cpu_share else []
        words += [f"RSS {size(host.rss_bytes)}"] if host.rss_bytes is not None else []
    return [word for word in words if word]


def remedies(view: View, room: int, most: int) -> list[Row]:
    """What was tried and may be, as mode 3 lists it; in at most so many rows."""
    found = lines(view)
    if not found:
        return [row(piece("none is known yet for this job", "muted"))]
    rows = table_rows(table(found), room)
    more = f"{len(rows) - most + 1} more: 3 lists them"
    below = row(piece(more, "muted", "screen.mode('tuning')"))
    return rows if len(rows) <= most else [*rows[: most - 1], below]


def now_line(view: View, room: int, most: int = 2) -> list[Row]:
    """What happens right now."""
    tone = "warn" if view.standing is not ScreenStanding.LIVE or view.silent_s >= 5 else ""
    return [row(piece(line, tone)) for line in shortened(activity(view, short=most < 2), room, most)]


def next_step(view: View) -> tuple[str, str]:
    """What to press or type now: the words, and the action of a click ("" where there is none)."""
    found, first = view.snapshot, "nothing to do: the first verdict takes seconds"
    if view.over:
        if found is None and view.hint:
            return view.hint, ""
        more = "; autobrrr report shows what was found" if found is not None and view.pid else ""
        return f"q leaves{more}", "screen.quit"
    if found is None:
        return first, ""
    script = "" if found.job is None else found.job.script.rsplit("/", 1)[-1]
    (tried, _), at_start = to_try(found), to_start_with(found)
    best = next((each.remedy for each in (*tried, *at_start, *found.advice)), "")
    if view.standing is ScreenStanding.LOST:
        return "autobrrr attach PID starts a session; this screen joins it", ""
    if view.standing is ScreenStanding.RECORDED:
        todo = "nothing to do: a trial decides by itself" if view.tuning else f"try {best}" if best else ""
        todo = "e saves what is on as a recipe" if found.active and not view.tuning else todo
        own = "autobrrr attach PID shows a job of your own"
        return f"{todo}; {own}" if todo else own, "screen.export" if todo.startswith("e ") else ""
    if not view.acting:
        return (f"attach without --readonly to try {best}" if best else "q leaves; the session goes on"), ""
    if view.tuning:
        return ("space continues" if view.paused else "space pauses, t stops and keeps what is proven"), ""
    if found.active:
        run = f", then: autobrrr run --recipe FILE -- python {script}" if script else ""
        return f"e saves what is on as a recipe{run}", "screen.export"
    if view.regime == "measuring":
        return first, ""
    if found.regime == "unknown" and busy_words(found) and found.contention:
        return f"p measures again after {takers_named(found.contention)}", "screen.probe"
    fits = not at_start or any(each.reach == "live" for each in found.advice)
    live = [each for each in lines(view) if each.is_live and each.remedy.default]
    if live and fits and (view.tuned is None or view.failed):
        counted = "1 remedy" if len(live) == 1 else f"{len(live)} remedies"
        return f"t tries {counted} in turn; what gives no proven gain is reverted", "screen.tune"
    later = at_next_start(found, f"python {script}" if script else STARTED)
    if later:
        return later, ""
    return "d detaches and leaves the job as it was", "screen.detach"


def safety(view: View) -> tuple[str, str]:
    """What the session does to the job and its results: clauses, the first says most; and the tone."""
    found = view.snapshot
    if found is None:
        return ("nothing was changed in the job" if view.over else "no remedy is on"), ""
    classes = _classes(view)
    kept = "".join(CLASS_WORDS[each] for each in classes[-1:])
    tone = "warn" if set(classes) & set(DARING) else ""
    if view.standing is ScreenStanding.LOST:
        if found.active or view.tuning:
            return "the job reverts by itself what was on; a recipe it was started with stays", ""
        return "no remedy was on; the job goes on without a session", ""
    if view.over:
        still = f"still on in the job: {', '.join(found.active)}; {kept}"
        return (still if found.active else "no remedy is on any more"), tone
    if view.tuning:
        now = view.progress.remedy if view.progress is not None else None
        class_ = next((each.remedy.class_ for each in lines(view) if each.remedy.remedy == now), "")
        said = f"; {CLASS_WORDS[class_]}" if class_ in CLASS_WORDS else ""
        return f"reverted unless it is proven faster{said}", "warn" if class_ in DARING else ""
    cost = "" if found.cost.share is None else f"; watching costs {share(found.cost.share)} of a step"
    if found.active:
        undo = ", d reverts" if view.acting else ""
        return f"{kept or 'what is on can be reverted'}{undo}{cost}", tone
    return f"{'read-only: nothing is changed' if view.readonly else 'no remedy is on'}{cost}", tone


def strip(ranks: Sequence[RankLine], room: int) -> list[Row]:
    """Two rows at most; where there are more ranks than cells a column stands for the slowest of a few."""
    slowest = next((each for each in ranks if each.slowest), None)
    each = -(-len(ranks) // max(1, room))
    groups = [ranks[at : at + each] for at in range(0, len(ranks), each)]
    times = [max((one.step_ns for one in group if one.step_ns is not None), default=None) for group in groups]
    said = [piece(f"{len(ranks)} rank{'s' * (len(ranks) > 1)}")]
    if slowest is not None:
        said.append(piece(f"  [{number(slowest)} {duration(slowest.step_ns)} slowest]", "worse"))
    known = [one.step_ns for one in ranks if one.step_ns is not None]
    if not known:
        return [row(*said)]
    columns = [
        piece(text, "worse" if slowest in group else "better")
        for text, group in zip(sparkline(times, len(times)), groups, strict=True)
    ]
    return [row(*said, piece(f"  median {duration(median(known))}", "muted")), row(*columns)]


def number(each: RankLine) -> str:
    return "?" if each.rank is None else str(each.rank)
