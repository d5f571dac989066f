"""The first screen: who limits the step, what was gained, the steps, the next thing to do. Never scrolls.

Wide terminals show its parts in boxes around a chart that grows with them, others one under the other. Each
part is a few rows for so many cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.renderables.digits import Digits

from autobrrr.quantities import clock, duration, share, size
from autobrrr.records import Advice, Diagnosis, LateRank, NoClaim, RankLine, TuneProgress, Tuning, limited_by
from autobrrr.records.busy_words import BUSY_AT, busy_words, decide_words, takers_named, waiting_share
from autobrrr.records.gain_words import CLASS_WORDS, SURE, factor_words, gain_words
from autobrrr.records.rank_records import late_words, straggler_words
from autobrrr.report.next_step import at_next_start, first_to_do, started
from autobrrr.report.page_model import Bar, Cell, PageTable, Tone
from autobrrr.report.page_text import bar_rows, table_rows
from autobrrr.report.pages.diagnosis_parts import evidence_table, phase_shares, ranks_table, signals_words
from autobrrr.report.text.verdict_text import MEASURING
from autobrrr.report.text_bars import flowed, sparkline
from autobrrr.report.text_rows import (
    BLANK,
    EDGES,
    LABEL,
    Piece,
    Row,
    beside,
    boxed,
    clipped,
    cut,
    labelled,
    piece,
    row,
    said,
    shortened,
    wrapped,
)
from autobrrr_tui.panes.job_header import activity
from autobrrr_tui.panes.steps_pane import chart, seconds_shown
from autobrrr_tui.panes.tuning_pane import BEGINS, DARING, lines, note, table
from autobrrr_tui.view_state import ScreenStanding, View

INDENT = 2 + LABEL
PANELS = (100, 27)  # cells and rows from which on there are boxes
NARROW = 70  # cells
ROOMY = 16  # rows from which on the next step may take two
TIGHT = 14  # rows below which the verdict's second sentence is left to mode 2
LEAST_CHART = 8  # rows of its box
BADGES = 52  # cells from which on advice says its class and when it takes effect
UNCLAIMED = "nothing is claimed: faster beside other programs"
WITH_IT, WITH_ALL = "with it against without it", "all kept together against none"
DECIDES = {"screen.tune": "autobrrr tune", "screen.probe": "autobrrr diagnose"}  # by a key
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


def glance_rows(view: View, height: int, width: int) -> list[Row]:
    """All of it in at most `height` rows."""
    found = view.snapshot
    known = found is None or view.regime != "unknown" or found.limit == "unknown"
    regime = row(piece(f"  regime: {view.regime}", "head" if known else "muted"))  # scripts may read it
    if found is None:
        return [regime, BLANK, *_one_under_other(_after(view, width, height))][:height]
    wide = width >= PANELS[0] and height >= PANELS[1]
    return [regime, *(_boxes if wide else _list)(view, found, width, height - 1)][:height]


def _boxes(view: View, found: Diagnosis, width: int, height: int) -> list[Row]:
    """The chart of steps takes what the others leave."""
    half, side, whole = width // 2, max(38, width * 3 // 10), width - EDGES
    after = _one_under_other(_after(view, width, height))
    judged = [*verdict(view, half - EDGES), *_grounds(view, found, half - EDGES), *_quiet(found)]
    gained = gain(view, width - half - EDGES)
    gains = [*(_large(gained.proven) if gained.proven else ()), *gained.rows]
    top = min(12, max(len(judged), len(gains), 4) + 2)
    spare = height - top - len(after)
    phases = [*_phases(found, side - EDGES), BLANK, *flowed(_device(found), side - EDGES)]
    remedies = _remedies(view, width - side - EDGES, max(5, spare // 2 - 2))
    low = min(max(8, spare // 2), max(len(phases), len(remedies)) + 2)
    ranks = _ranks(view, found.straggler, whole, spare // 3)
    below = boxed("RANKS", ranks, width, len(ranks) + 2) if ranks else []
    known = [each for each in found.evidence if each.value is not None]
    signals = table_rows(evidence_table(known), whole)[1:]
    if known and spare - low - len(below) - len(signals) - 2 >= 2 * LEAST_CHART:
        below += boxed("SIGNALS", signals, width, len(signals) + 2)
    middle = spare - low - len(below)
    steps = [step_figures(view, whole), *chart(view, whole, middle - 3)]
    above = boxed("VERDICT", judged, half, top)
    return [
        *beside(above, boxed(gained.head.upper(), gains, width - half, top, gained.note), half),
        *boxed("STEP", steps, width, middle, seconds_shown(view, whole)),
        *below,
        *beside(boxed("PHASES", phases, side, low), boxed("REMEDIES", remedies, width - side, low), side),
        *after,
    ]


class RowGroup(NamedTuple):
    """Rows that stay or go together, under a name; those of one name that follow each other are one block."""

    dispensable: int  # the highest goes first; 0 never
    name: str
    rows: list[Row]
    joined: bool = False  # to the block above it: no blank row between them


def _list(view: View, found: Diagnosis, width: int, height: int) -> list[Row]:
    """One under the other: space goes first, then the legend and the less needed lines."""
    room, tight = width - INDENT - 1, height < TIGHT
    steps = [step_figures(view, room), *_spark(view, room)]
    narrow = width < NARROW
    phases = (_phase_words if narrow else _phases)(found, room)
    gained = gain(view, room)
    groups = [
        RowGroup(0, "", verdict(view, width - 4, 3 if tight else 2, brief=tight)),
        RowGroup(4, "", _grounds(view, found, width - 4)),
        RowGroup(0, "step", steps[:1]),
        RowGroup(5, "step", steps[1:]),
        RowGroup(int(narrow), "phases", phases[:1]),
        RowGroup(1, "phases", phases[1:]),
        RowGroup(3, "device", flowed(_device(found), room)[:2]),
        RowGroup(1, "ranks", strip(view.ranks, room)),
        RowGroup(3, "ranks", _late(found.straggler, room, 2)),
        RowGroup(0, gained.head, [cut(line, room) for line in gained.rows[: gained.most]]),
        *_after(view, width, height),
    ]
    while sum(len(group.rows) for group in groups) > height:
        worst = max(groups, key=lambda group: group.dispensable)
        if worst.dispensable == 0:
            break
        groups.remove(worst)
    spare, head = height - sum(len(group.rows) for group in groups), groups[0]
    if spare < 0:  # the last rows are there at every size
        groups[0] = head._replace(rows=head.rows[: max(1, len(head.rows) + spare)])
    return _one_under_other(groups, spare)


def _one_under_other(groups: Sequence[RowGroup], spare: int = 0) -> list[Row]:
    """Their rows, the first of a block behind its name; so many spare rows between them."""
    rows: list[Row] = []
    before = None
    for group in groups:
        for at, line in enumerate(group.rows):
            begins = at == 0 and group.name != before
            if rows and begins and not group.joined and spare > 0:
                rows.append(BLANK)
                spare -= 1
            rows.append(labelled(group.name * begins, *line) if group.name else row("  ", *line))
            before = group.name
    return rows


def _after(view: View, width: int, height: int) -> list[RowGroup]:
    """What happens now, what to do next, whether it is safe: the last rows of every state and size."""
    room, most = width - INDENT - 1, 2 if height >= ROOMY else 1
    happens = "warn" if view.standing is not ScreenStanding.LIVE or view.silent_s >= 5 else ""
    words, action = next_step(view)
    safe, tone = _safety(view)
    return [
        RowGroup(0, "now", _brief(activity(view, short=most < 2), room, most, happens)),
        RowGroup(0, "next", _brief(words, room, most, "strong", action), joined=True),
        RowGroup(0, "safe", _brief(safe, room, 1, tone), joined=True),
    ]


def _brief(text: str, room: int, most: int, tone: str, action: str = "") -> list[Row]:
    return [row(piece(line, tone, action)) for line in shortened(text, room, most)]


def verdict(view: View, room: int, most: int = 3, *, brief: bool = False) -> list[Row]:
    """Who limits the step, with what, how sure; what was known stays, with its age.

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
    late = "" if found.straggler is None else late_words(found.straggler)
    rows: list[Row] = []
    adds = named.reason
    if named.limit != "unknown":
        sure = f"   {DOUBT[named.limit_confidence]} {named.limit_confidence} confidence"
        less = " provisional" * named.provisional + ", before the tuning" * named.before_tuning
        doubt = (piece(sure, "accent"), piece(less, "warn"), piece(age))
        first, *others = wrapped(limited_by(named), room - sum(len(text) for text, _, _ in doubt), most)
        rows.append(row(piece(first, "muted" if age else "head"), *doubt))
        rows += [row(piece(line, "muted" if age else "")) for line in others]
        adds = named.adds
        repeats = (named.regime, named.confidence) == (named.limit, named.limit_confidence)
        if named.regime not in ("unknown", "mixed") and not repeats:
            adds = f"{named.regime} ({named.confidence})" + (f": {adds}" if adds else "")
    if named.where and not age:
        rows += said(f"at {named.where[0].words}", room, most=2 - brief)
    rows += said(late, room, "worse", 1)
    if named.limit == "unknown" or not (age or brief):
        rows += said(adds, room, "muted" if view.regime == "measuring" or age else "", most - bool(late))
    if age:
        now = "measuring again" if view.regime == "measuring" else f"now: {found.reason}"
        rows += said(now, room, most=2)
    return rows


def _grounds(view: View, found: Diagnosis, room: int) -> list[Row]:
    """Which signals carry the verdict, and what would decide an open one, where the next step is another."""
    rows, same = said(signals_words(found), room, "muted", 1), DECIDES.get(next_step(view)[1], "-")
    told = not (found.decide_with or same).startswith(same)
    if told and found.state not in (*MEASURING, "ended"):
        rows += said(f"to decide: {decide_words(found)}", room, "accent", 2)
    return rows


def _quiet(found: Diagnosis) -> list[Row]:
    """That nobody takes the CPUs from this job; a banner tells who does."""
    delay = waiting_share(found)
    return [] if delay is None or delay >= BUSY_AT else [row(piece("machine quiet", "muted"))]


class GainPart(NamedTuple):
    """What the first screen says of gains: under which head, and whose figures they are."""

    rows: list[Row]
    head: str = "gain"
    note: str = ""
    proven: str = ""  # the factor alone
    most: int = 2  # rows on a small screen


def gain(view: View, room: int) -> GainPart:
    """What was gained, or is tried, or could be."""
    found, tuned, now = view.snapshot, view.tuned, view.progress
    if found is None:
        return GainPart([])
    if view.tuning and now is not None:
        whose = WITH_ALL if now.remedy is None else WITH_IT
        return GainPart(_tried_now(now, room), note=f"{whose}, {SURE}" if now.interval else "")
    if tuned is not None and tuned.kept:
        measured = tuned.interval is not None
        note = f"{WITH_ALL}, {SURE}" if measured else ""
        if set(tuned.kept) <= set(found.active):
            if tuned.no_claim is NoClaim.CROWDED:
                return GainPart([row(piece(UNCLAIMED, "warn")), _what_is_on(view, found, room)])
            if measured:
                rows = _proven(tuned, found, _what_is_on(view, found, room))
                return GainPart(rows, note=note, proven=factor_words(tuned.speedup))
        elif not found.active and (measured or tuned.no_claim is NoClaim.CROWDED):
            was = f"proven: {gain_words(tuned.speedup, tuned.interval)}" if measured else UNCLAIMED
            was += f" with {', '.join(tuned.kept)}"
            return GainPart([*said(was, room, most=1), row(piece("nothing is on now", "muted"))], note=note)
    if found.active:
        alone = row(piece("not measured against the job without it; t does", "muted"))
        return GainPart([alone, _what_is_on(view, found, room)])
    rows = said(view.failed, room, "worse", 2)
    if tuned is not None and not tuned.kept:
        rows.append(row(piece("tuned: no remedy gave a proven gain", "muted")))
    if not found.advice:
        names = [each.key for each in lines(view) if each.turn == 0 and view.regime != "measuring"]
        untried = f"not tried yet: {', '.join(names)}" if names else "nothing tried yet"
        return GainPart(rows or [row(piece(untried, "muted"))])
    wide = room >= BADGES
    advised = [_advised(each, wide=wide) for each in found.advice[:4]]
    listed = PageTable(title="", heads=("-", "#-", "-" if wide else "~-", "-"), rows=advised, tall=1)
    advice = table_rows(listed, room)
    if rows:
        return GainPart([*rows, *advice], most=len(rows) + 2)
    return GainPart(advice, "may gain", "predicted, not tried yet")


def _large(factor: str) -> list[Row]:
    """A figure in letters three rows high."""
    drawn = "".join(one.text for one in Digits(factor).render(Style(bold=True)) if isinstance(one, Segment))
    return [row(piece(line, "better")) for line in drawn.splitlines()]


def _advised(advice: Advice, *, wide: bool) -> list[Cell]:
    """Where there is little room, only classes that change the training are named."""
    factor = "" if advice.expected is None else factor_words(advice.expected)
    tone: Tone = "warn" if advice.class_ in DARING else "accent"
    badge = f"[{advice.class_}]" if wide or advice.class_ in DARING else ""
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
    minutes = 60 * (1 - 1 / tuned.speedup)
    saved = f"saves {minutes:.0f} min of every hour of training" if minutes > 0 else ""
    return [row(*figures, gained, f"   proven{whose}"), which, *([row(saved)] if saved else [])]


def _classes(view: View) -> list[str]:
    """Classes of what is on, the one that changes most last."""
    return [class_ for class_ in CLASS_WORDS if class_ in {each.class_ for each in view.active}]


def _what_is_on(view: View, found: Diagnosis, room: int) -> Row:
    """The remedies that are on and what they do to the results."""
    badges = [piece(f"  [{each}]", "warn" if each in DARING else "accent") for each in _classes(view)]
    left = room - sum(len(text) for text, _, _ in badges)
    return row(piece(clipped(f"on: {', '.join(found.active)}", left), "better"), *badges)


def _tried_now(now: TuneProgress, room: int) -> list[Row]:
    cells = max(4, min(30, room - 20))
    full = round(cells * min(1.0, now.elapsed_ns / now.budget_ns)) if now.budget_ns > 0 else 0
    rows = said(f"trying {now.remedy or 'what is kept, all together'}", room, "warn", 1)
    if now.achieved is not None:
        pairs = piece(f"   after {now.pairs} A/B pairs", "muted")
        rows.append(row(piece(gain_words(now.achieved, now.interval), "strong"), pairs))
    passed = f" {now.elapsed_ns / 1e9:.0f} of {now.budget_ns / 1e9:.0f} s"
    rows.append(row(piece("━" * full, "accent"), piece("─" * (cells - full), "muted"), passed))
    return [*rows, *said(f"kept so far: {', '.join(now.kept)}" if now.kept else "", room, "better", 1)]


def step_figures(view: View, room: int) -> Row:
    """`4.18 ms now   4.20 ms median   4.69 ms p99   238 steps/s   of 670 steps`."""
    found = view.snapshot
    aged = found is not None and found.step_ns.median is None and view.timed is not None
    found = view.timed if aged else found  # the last figures stay, dimmed
    if found is None or found.step_ns.median is None:
        steps = 0 if found is None or not found.steps else found.steps
        return row(piece("no step seen yet" if not steps else f"{steps} steps seen", "muted"))
    stats, last_ns = found.step_ns, view.details.history.last_ns
    words = [f"{duration(stats.median)} median", f"{duration(stats.p99)} p99"]
    if last_ns is not None and not aged:
        words.insert(0, f"{duration(last_ns)} now")
    per_s = 1e9 / stats.median if stats.median else 0.0
    rates = [(per_s, "steps/s"), (per_s * (found.batch_probe.batch or 0), "samples/s")]
    more = [f"{rate:,.0f} {unit}" if rate >= 10 else f"{rate:.2f} {unit}" for rate, unit in rates if rate]
    more.append(f"of {stats.count} steps")
    while more and len("   ".join([*words, *more])) > room:
        more.pop()
    figures = piece("   ".join(words), "muted" if aged else "strong")
    return row(figures, piece("".join(f"   {each}" for each in more), "muted"))


def _spark(view: View, room: int) -> list[Row]:
    """The steps of the last minutes in one line."""
    line = sparkline(view.details.history.median_ns, room - 8)
    return [row(piece(line, "accent"), piece(f"  {len(line)} s", "muted"))] if line else []


def _phases(found: Diagnosis, room: int) -> list[Row]:
    """What was timed, as a bar that sums to the step; below it what its parts are."""
    return bar_rows(Bar(title="phases", parts=phase_shares(found.phases_ns)), room)


def _phase_words(found: Diagnosis, room: int) -> list[Row]:
    """The phases that take most, as many as fit in a line: a bar without its legend means nothing."""
    known = sorted(phase_shares(found.phases_ns), key=lambda part: -part[1])
    words = [piece(f"{name} {share(part)}", name.replace(" ", "_")) for name, part in known if part > 0]
    return flowed(words, room)[:1]


def _device(found: Diagnosis) -> list[Piece]:
    """The GPU where there is one, else the processors as the machine shows them."""
    device, host = found.device or {}, found.host
    words = [say(device[name]) for name, say in DEVICE.items() if device.get(name) is not None]
    if host is not None:
        words += [f"CPU {share(host.cpu_share)} of a core"] if host.cpu_share is not None else []
        words += [f"workers {share(host.children_cpu_share)}"] if host.children_cpu_share else []
        words += [f"RSS {size(host.rss_bytes)}"] if host.rss_bytes else []  # 0: the process is gone
    return [piece(word) for word in words if word]


def _remedies(view: View, room: int, most: int) -> list[Row]:
    """What was tried and may be, as mode 3 lists it; in at most so many rows."""
    found = lines(view)
    if not found:
        return [row(piece("none is known yet for this job", "muted"))]
    rows, *listed = ([line] for line in table_rows(table(found), room))
    for remedy, shown in zip(found, listed, strict=True):
        gained = remedy.state == "reverted" and (remedy.interval or [0.0])[0] > 1  # so a reason is due
        rows += [*shown, note(remedy, room)] if gained else shown
    more = sum([each] in listed for each in rows[most - 1 :])
    below = row(piece(f"{more} more: 3 lists them", "muted", "screen.mode('tuning')"))
    return rows if len(rows) <= most else [*rows[: most - 1], below]


def _ranks(view: View, straggler: LateRank | None, room: int, most: int) -> list[Row]:
    """The strip, and in at most so many rows a line for each rank, or which one is late."""
    if not view.ranks:
        return []
    rows = strip(view.ranks, room)
    each = table_rows(ranks_table(view.ranks, straggler), room)
    if len(rows) + len(each) <= most and len(view.ranks) > 1:
        return [*rows, *each]
    return [*rows, *_late(straggler, room, 1)]


def _late(straggler: LateRank | None, room: int, most: int) -> list[Row]:
    tone = "worse" if straggler is not None and straggler.rank is not None else ""
    return said("" if straggler is None else straggler_words(straggler), room, tone, most)


def strip(ranks: Sequence[RankLine], room: int) -> list[Row]:
    """Two rows at most; where there are more ranks than cells a column stands for the slowest of a few."""
    if not ranks:
        return []
    slowest = next((each for each in ranks if each.slowest), None)
    each = -(-len(ranks) // max(1, room))
    groups = [ranks[at : at + each] for at in range(0, len(ranks), each)]
    times = [max((one.step_ns for one in group if one.step_ns is not None), default=None) for group in groups]
    head = [piece(f"{len(ranks)} rank{'s' * (len(ranks) > 1)}")]
    if slowest is not None:
        name = "?" if slowest.rank is None else slowest.rank
        head.append(piece(f"  [{name} {duration(slowest.step_ns)} slowest]", "worse"))
    known = [one.step_ns for one in ranks if one.step_ns is not None]
    if not known:
        return [row(*head)]
    columns = [
        piece(text, "worse" if slowest in group else "better")
        for text, group in zip(sparkline(times, len(times)), groups, strict=True)
    ]
    return [row(*head, piece(f"  median {duration(median(known))}", "muted")), row(*columns)]


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
    best = first_to_do(found)
    named = next((f"try {each.remedy}" for each in (best, *found.advice) if each is not None), "")
    edit = at_next_start(best) if best is not None and best.reach == "edit" else ""
    if view.standing is ScreenStanding.LOST:
        return f"autobrrr attach {found.pid} starts a session; this screen joins it", ""
    if view.standing is ScreenStanding.RECORDED:
        todo = "nothing to do: a trial decides by itself" if view.tuning else edit or named
        todo = "e saves what is on as a recipe" if found.active and not view.tuning else todo
        own = "autobrrr attach shows your own job"
        return f"{todo}; {own}" if todo else own, "screen.export" if todo.startswith("e ") else ""
    if not view.acting:
        tries = f"attach without --readonly to {named}" if named else "q leaves; the session goes on"
        return edit or tries, ""
    if view.tuning:
        return f"space {'continues' if view.paused else 'pauses'}, t stops and keeps what is proven", ""
    if found.active:
        run = f", then: autobrrr run --recipe FILE -- python {script}" if script else ""
        return f"e saves what is on as a recipe{f', then {edit}' if edit else run}", "screen.export"
    if view.regime == "measuring":
        return first, ""
    if found.regime == "unknown" and busy_words(found) and found.contention:
        return f"p measures again after {takers_named(found.contention)}", "screen.probe"
    live = [each for each in lines(view) if each.turn == 0]
    if live and (view.tuned is None or view.failed) and (best is None or best.reach == "live"):
        counted = "1 remedy" if len(live) == 1 else f"{len(live)} remedies"
        return f"t tries {counted} in turn; what gives no proven gain is reverted", "screen.tune"
    later = at_next_start(first_to_do(found, live=False), started(found))
    return (later, "") if later else ("d detaches and leaves the job as it was", "screen.detach")


def _safety(view: View) -> tuple[str, str]:
    """What the session does to the job and its results: clauses, the first says most; and the tone."""
    found = view.snapshot
    if found is None:
        return ("nothing was changed in the job" if view.over else "no remedy is on"), ""
    classes = _classes(view)
    kept = "".join(f"{each}: {CLASS_WORDS[each]}" for each in classes[-1:])
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
        tried = [each.remedy.class_ for each in lines(view) if each.remedy.remedy == now]
        class_, undone = (tried or classes[-1:] or [""])[0], "reverted unless it is proven faster"
        said = f"{class_}: {undone}; {CLASS_WORDS.get(class_, '')}" if class_ else undone
        return said, "warn" if class_ in DARING else ""
    if found.active:
        undo = "; u undoes one, d all" if view.acting else ""
        return f"{kept or 'what is on can be reverted'}{undo}", tone
    return "read-only: nothing changes" if view.readonly else "nothing changed: the script's results", tone
