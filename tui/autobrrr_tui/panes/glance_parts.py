"""What stands on the first screen, part by part: each a few rows for so many cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autobrrr.quantities import clock, duration, share, size
from autobrrr.records import Diagnosis, NoClaim, Phases, limited_by
from autobrrr.records.busy_words import BUSY_AT, busy_words, takers_named, waiting_share
from autobrrr.records.gain_words import CLASS_WORDS, SURE, class_badge, factor_words, gain_words
from autobrrr.records.rank_records import late_words
from autobrrr.report.log_scale import LogScale, gain_scale
from autobrrr.report.page_model import Cell, Gain, PageTable, bar, part_of, time
from autobrrr.report.text.verdict_text import signals_words
from autobrrr.report.text_plot import labels, place, whisker
from autobrrr_tui import text_bars
from autobrrr_tui.page_rows import table_rows
from autobrrr_tui.panes.job_header import activity
from autobrrr_tui.panes.tuning_pane import BEGINS, DARING, RemedyRow, lines
from autobrrr_tui.text_rows import Piece, Row, clipped, fitted, middled, padded, piece, row, wrapped
from autobrrr_tui.view_state import ScreenStanding, View

PHASES = (
    ("data_wait", "data", "░", "data_wait"),
    ("host_to_device", "copy", "▒", "host_to_device"),
    ("forward", "forward", "▓", "forward"),
    ("backward", "backward", "█", "backward"),
    ("optimizer", "optimizer", "▞", "optimizer"),
    ("other", "other", "·", "other"),
)
WITH_IT, WITH_ALL = "with it against without it", "all kept together against none"
DOUBT = {"high": "●●●", "medium": "●●○", "low": "●○○"}
UNITS: Mapping[str, Callable[[float], str]] = {
    "_share": share,
    "_bytes": size,
    "_w": lambda value: f"{value:.0f} W",
    "_mw": lambda value: f"{value / 1000:.0f} W",
    "_mhz": lambda value: f"{value:.0f} MHz",
    "_hz": lambda value: f"{value / 1e6:.0f} MHz",
    "_c": lambda value: f"{value:.0f} C",
    "_percent": lambda value: f"{value:.0f} %",
}
OUTCOMES = {"kept": "✓", "on": "✓", "trying": "▸", "confirming": "▸", "watched": "▸", "reverted": "✗"}


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
    strong, plain = ("dim", "dim") if age else ("regime", "plain")
    rows: list[Row] = []
    if named.limit != "unknown":
        doubt = (*_doubt(named.limit_confidence, named.provisional), piece(age))
        first, *others = wrapped(limited_by(named), room - sum(len(text) for text, _, _ in doubt), most)
        rows.append(row(piece(first, strong), *doubt))
        rows += [row(piece(line, plain)) for line in others]
    if named.where and not age:
        rows += [row(piece(line, plain)) for line in wrapped(f"at {named.where[0].words}", room, 2 - brief)]
    late = "" if found.straggler is None else late_words(found.straggler)
    rows += [row(piece(clipped(late, room), "bad"))] * bool(late)
    said = named.reason if named.limit == "unknown" else named.adds
    repeats = (named.regime, named.confidence) == (named.limit, named.limit_confidence)
    if named.limit != "unknown" and named.regime not in ("unknown", "mixed") and not repeats:
        said = f"{named.regime} ({named.confidence})" + (f": {said}" if said else "")
    tone = "dim" if view.regime == "measuring" or age else "plain"
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
    rows = [row(piece(clipped(said, room), "dim"))] if said else []
    if found.decide_with and found.state not in ("tracing", "probing", "watching"):
        rows.append(row(piece(clipped(f"to decide: {found.decide_with}", room), "accent")))
    return rows


def machine(found: Diagnosis) -> list[Row]:
    """That nobody takes the CPUs from this job; a banner tells who does."""
    delay = waiting_share(found)
    return [] if delay is None or delay >= BUSY_AT else [row(piece("machine quiet", "dim"))]


def gain(view: View, room: int, *, badges: bool = False, titled: bool = False) -> list[Row]:
    """What was gained, or is tried, or could be; with badges for what `safety` says in words.

    Where a title stands above it (`gain_of`), predictions are not called so once more.
    """
    found = view.snapshot
    if found is None:
        return []
    if view.tuning and view.progress is not None:
        return _tried_now(view, room)
    on = _on(view)
    if on:
        proven, *saved = _proven(view)
        which, *safe = _what_is_on(view, ", ".join(on), room, badges)
        return [proven, which, *saved, *safe]
    if view.tuned is not None and view.tuned.kept and view.tuned.interval is not None:
        was = gain_words(view.tuned.speedup, view.tuned.interval)
        kept = ", ".join(view.tuned.kept)
        return [
            row(piece(clipped(f"proven: {was} with {kept}", room))),
            row(piece("nothing is on now", "dim")),
        ]
    rows = [row(piece(line, "bad")) for line in wrapped(view.failed, room, 2)] if view.failed else []
    if view.tuned is not None and not view.tuned.kept:
        rows.append(row(piece("tuned: no remedy gave a proven gain", "dim")))
    if not found.advice:
        return rows or [row(piece("nothing tried yet", "dim"))]
    shown = found.advice[:4]
    wide = room >= 50
    longest = min(20, max(len(each.remedy) for each in shown)) if wide else 0
    for advice in shown:
        # Where there is no room for all classes, those that change the training are said.
        badge = _badge(advice.class_, spaces=1 + wide) if wide or advice.class_ in DARING else piece("")
        foreseen = _foreseen(advice.expected, word=not (titled and is_foretold(view)))
        how = "" if advice.reach == "live" else f"  {BEGINS.get(advice.reach, advice.reach)}"
        left = room - 1 - len(foreseen) - len(badge[0])
        if left - len(how) < min(11, len(advice.remedy)):  # cells that a name needs at least
            how = ""
        cells = max(8, min(longest or 20, left - len(how)))
        rows.append(
            row(
                piece(f"{padded(middled(advice.remedy, cells), cells)} {foreseen}", "accent"),
                piece(how, "dim"),
                badge,
            )
        )
    return rows


def is_foretold(view: View) -> bool:
    """Whether all that `gain` shows is predicted: nothing was gained or tried."""
    found = view.snapshot
    if found is None or view.tuning or _on(view) or view.tuned is not None or view.failed:
        return False
    return bool(found.advice)


def gain_head(view: View) -> str:
    """What `gain` shows: something gained or tried, or only what is predicted."""
    return "may gain" if is_foretold(view) else "gain"


def gain_of(view: View) -> str:
    """Whose gain the interval in `gain` is of, or that it has none yet."""
    if is_foretold(view):
        return "predicted, not tried yet"
    if view.tuning and view.progress is not None:
        if view.progress.interval is None:
            return ""
        return f"{WITH_ALL if view.progress.remedy is None else WITH_IT}, {SURE}"
    tuned = view.tuned
    if tuned is None or not tuned.kept or tuned.interval is None or tuned.no_claim is not None:
        return ""
    return f"{WITH_ALL}, {SURE}" if not _on(view) or _is_on(view, tuned.kept) else ""


def remedies_of(view: View) -> str:
    """Whose gains the intervals in `remedies` are of."""
    return f"each: {WITH_IT}, {SURE}" if any(each.interval is not None for each in lines(view)) else ""


def _foreseen(expected: float | None, *, word: bool) -> str:
    said = f"{'' if expected is None else factor_words(expected):>6}"
    return said + (" " * 10 if expected is None else " predicted") * word


def _on(view: View) -> list[str]:
    return list(view.snapshot.active) if view.snapshot is not None else []


def _is_on(view: View, kept: Sequence[str]) -> bool:
    """Whether all that a tuning has kept is on now: its figure is of all of it."""
    return bool(kept) and set(kept) <= set(_on(view))


def _proven(view: View) -> list[Row]:
    tuned = view.tuned
    if tuned is not None and tuned.no_claim is NoClaim.CROWDED and _is_on(view, tuned.kept):
        return [row(piece("faster beside other programs; nothing is claimed", "warn"))]
    if tuned is None or tuned.interval is None or not _is_on(view, tuned.kept):
        return [row(piece("not measured against the job without it; t does", "dim"))]
    rows: list[Row] = []
    figures: list[Piece] = []
    if tuned.objective == "step_ns" and tuned.baseline and tuned.best:
        figures = [piece(f"{duration(tuned.baseline)} → {duration(tuned.best)}   ", "strong")]
    whose = "" if set(_on(view)) == set(tuned.kept) else f" with {', '.join(tuned.kept)}"
    rows.append(row(*figures, piece(gain_words(tuned.speedup, tuned.interval), "good"), f"   proven{whose}"))
    if tuned.speedup > 1:
        minutes = 60 * (1 - 1 / tuned.speedup)
        rows.append(row(f"saves {minutes:.0f} min of every hour of training"))
    return rows


def _classes(view: View) -> list[str]:
    """Classes of what is on, the one that changes most last."""
    active = view.details.active if view.details is not None else ()
    return sorted({each.class_ for each in active if each.class_ in CLASS_WORDS}, key=list(CLASS_WORDS).index)


def _what_is_on(view: View, on: str, room: int, badges_only: bool) -> list[Row]:
    """The remedies that are on and what they do to the results, in a row or two."""
    classes = _classes(view)
    safe = "" if badges_only else "".join(CLASS_WORDS[each] for each in classes[-1:])
    words = piece(safe, "warn" if set(classes) & set(DARING) else "plain")
    said = f"on: {on}"
    if safe and len(said) + 3 + len(safe) <= room:
        return [row(piece(said, "good"), "   ", words)]
    badges = [_badge(each) for each in classes]
    left = room - sum(len(text) for text, _, _ in badges)
    return [row(piece(clipped(said, left), "good"), *badges), *[row(words)] * bool(safe)]


def _badge(class_: str, spaces: int = 2) -> Piece:
    return piece(f"{' ' * spaces}[{class_badge(class_)}]", "warn" if class_ in DARING else "accent")


def _tried_now(view: View, room: int) -> list[Row]:
    now = view.progress
    if now is None:
        return []
    cells = max(4, min(30, room - 20))
    part = 0.0 if now.budget_ns <= 0 else min(1.0, now.elapsed_ns / now.budget_ns)
    full = round(part * cells)
    name = now.remedy or "what is kept, all together"
    rows = [row(piece(clipped(f"trying {name}", room), "warn"))]
    if now.achieved is not None:
        rows.append(
            row(gain_words(now.achieved, now.interval), piece(f"   after {now.pairs} A/B pairs", "dim"))
        )
    rows.append(
        row(
            piece("━" * full, "accent"),
            piece("─" * (cells - full), "dim"),
            f" {now.elapsed_ns / 1e9:.0f} of {now.budget_ns / 1e9:.0f} s",
        )
    )
    if now.kept:
        rows.append(row(piece(clipped(f"kept so far: {', '.join(now.kept)}", room), "good")))
    return rows


def step_figures(view: View, room: int) -> Row:
    """`4.18 ms now   4.20 ms median   4.69 ms p99   238 steps/s   of 670 steps`."""
    found = view.snapshot
    aged = found is not None and found.step_ns.median is None and view.timed is not None
    found = view.timed if aged else found  # the last figures stay, dimmed
    if found is None or found.step_ns.median is None:
        steps = 0 if found is None or not found.steps else found.steps
        return row(piece("no step seen yet" if not steps else f"{steps} steps seen", "dim"))
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
    said = piece("   ".join(words), "dim" if aged else "strong")
    return row(said, piece("".join(f"   {each}" for each in more), "dim"))


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2f}"


def phase_parts(phases: Phases) -> list[tuple[str, float, str, str]]:
    """Name, time, glyph and tone of what was timed; what is not timed apart lies in `other`."""
    inside = _not_timed(phases)
    other = f"other with {' and '.join(inside)}" if inside else "other"
    return [
        (other if field == "other" else name, float(value), glyph, tone)
        for field, name, glyph, tone in PHASES
        if (value := getattr(phases, field)) is not None
    ]


def _not_timed(phases: Phases) -> list[str]:
    """Phases whose time lies in `other`."""
    return [name for name in ("forward", "optimizer") if getattr(phases, name) is None]


def phase_bar(phases: Phases, room: int) -> list[list[Piece]]:
    """One bar that sums to the step, and below it what its parts are."""
    known = phase_parts(phases)
    whole = sum(value for _, value, _, _ in known)
    if whole <= 0:
        return []
    shown = [part for part in known if part[1] / whole >= 0.0005]
    said = text_bars.legend(shown, [share(value / whole) for _, value, _, _ in shown])
    return [text_bars.bar(known, room), *text_bars.flowed(said, room)]


def phase_words(phases: Phases, room: int) -> Row:
    """The phases that take most, as many as fit in a line."""
    known = sorted(phase_parts(phases), key=lambda part: -part[1])
    whole = sum(value for _, value, _, _ in known)
    words = [piece(f"{name} {share(value / whole)}", tone) for name, value, _, tone in known if whole > 0]
    return tuple(text_bars.flowed(words, room)[0])


def phase_rows(phases: Phases, room: int) -> list[Row]:
    """A bar for each phase."""
    known = phase_parts(phases)
    whole = sum(value for _, value, _, _ in known)
    if whole <= 0:
        return []
    longest = max(value for _, value, _, _ in known)
    rows = [
        [
            Cell(text="other" if hue == "other" else name),
            bar(value / longest, hue),
            part_of(value / whole),
            time(value),
        ]
        for name, value, _, hue in known
        if value / whole >= 0.0005
    ]
    inside = _not_timed(phases)
    below = [row(piece(f"other holds {' and '.join(inside)}", "dim"))] if inside else []
    return [*table_rows(PageTable(title="", heads=("", "-", "#", "#"), rows=rows), room), *below]


def device_words(found: Diagnosis) -> list[str]:
    """The GPU where there is one, else the processors as the machine shows them."""
    device, host = dict(found.device or {}), found.host
    used, total = device.get("memory_used_bytes"), device.get("memory_total_bytes")
    if isinstance(used, int) and isinstance(total, int):
        device["memory_used_bytes"] = f"{size(used)} of {size(total)}"
        del device["memory_total_bytes"]
    words = [_device_word(name, value) for name, value in device.items() if not isinstance(value, dict)]
    if host is not None:
        words += [f"CPU {share(host.cpu_share)} of a core"] if host.cpu_share is not None else []
        words += [f"workers {share(host.children_cpu_share)}"] if host.children_cpu_share else []
        words += [f"RSS {size(host.rss_bytes)}"] if host.rss_bytes is not None else []
    return [word for word in words if word]


def _device_word(name: str, value: object) -> str:
    """One figure of a device record; its unit is the end of its name."""
    if value is None or value == []:
        return ""
    if isinstance(value, list | tuple):
        return f"{_spoken(name)} {', '.join(map(str, value))}"
    if name in ("name", "device"):
        return str(value)
    for ending, said in UNITS.items():
        if name.endswith(ending) and isinstance(value, int | float):
            return f"{_spoken(name.removesuffix(ending))} {said(value)}"
    return f"{_spoken(name.removesuffix('_used_bytes'))} {value}"


def _spoken(name: str) -> str:
    return name.replace("_", " ").replace("gpu util", "GPU-Util").replace("gpu ", "GPU ")


def remedies(view: View, room: int, most: int) -> list[Row]:
    """What was tried and may be: outcome, interval on one logarithmic axis, gain, class."""
    found = lines(view)
    if not found or most < 2:
        return [row(piece("none is known yet for this job", "dim"))]
    tried = [each for each in found if each.achieved is not None]
    if not tried and view.snapshot is not None:  # what the verdict speaks for stands first
        advised = {each.remedy for each in view.snapshot.advice}
        found = sorted(found, key=lambda each: each.remedy not in advised)
    cells = min(60, max(14, room - 68)) if tried and room >= 24 + 14 + 40 else 0
    scale = gain_scale(bound for each in tried for bound in each.interval or [each.achieved or 1.0])
    ticks = sorted((place(factor, scale, cells), f"{factor:g}x") for factor in scale.factors())
    left = most - bool(cells)
    shown = found if len(found) <= left else found[: left - 1]
    axis = f"#-{labels(ticks, cells):<{cells}}" if cells else "-"
    table = PageTable(
        title="",
        heads=("-", axis, "-", "-"),
        rows=[_remedy(each, scale, cells) for each in shown],
        tall=1,
    )
    more = f"  {len(found) - len(shown)} more: 3 lists them"
    below = [row(piece(more, "dim", "screen.mode('tuning')"))] if len(shown) < len(found) else []
    return [*table_rows(table, room), *below]


def _remedy(each: RemedyRow, scale: LogScale, cells: int) -> list[Cell]:
    on = each.token is not None
    glyph = "·" if each.state in ("kept", "on") and not on else OUTCOMES.get(each.state, "·")
    side = Gain(name="", achieved=each.achieved, interval=each.interval).side
    figure, tried = gain_words(each.achieved, each.interval), each.achieved is not None
    if not tried:
        over = each.predicted is None or each.why  # a prediction is of no use once a trial has ended
        figure = each.state if over else f"{factor_words(each.predicted)} predicted"
    drawn = whisker(each.achieved, each.interval, scale, cells) if tried else ""
    return [
        Cell(text=f"{glyph} {each.key}", tone="better" if on else "warn" if glyph == "▸" else ""),
        Cell(text=f"{drawn:<{cells}}", tone=side),
        Cell(text=figure, tone=side if tried else "muted"),
        Cell(text=class_badge(each.class_), tone="warn" if each.class_ in DARING else "muted"),
    ]


def now_line(view: View, room: int, most: int = 2) -> list[Row]:
    """What happens right now."""
    tone = "warn" if view.standing is not ScreenStanding.LIVE or view.silent_s >= 5 else "plain"
    return [row(piece(line, tone)) for line in fitted(activity(view, short=most < 2), room, most)]


def next_step(view: View) -> tuple[str, str]:
    """What to press or type now: the words, and the action of a click ("" where there is none)."""
    found = view.snapshot
    if view.over:
        if found is None:
            return view.hint or "q leaves", "" if view.hint else "screen.quit"
        return "q leaves; autobrrr report shows what was found" if view.pid else "q leaves", "screen.quit"
    if found is None:
        return "nothing to do: the first verdict takes seconds", ""
    if view.standing is ScreenStanding.RECORDED:
        return _next_of_record(view, found)
    if view.standing is ScreenStanding.LOST:
        return "autobrrr attach PID starts a session; this screen joins it", ""
    if not view.acting:
        first = _first_to_try(found)
        return (f"attach without --readonly to try {first}" if first else "q leaves; the session goes on"), ""
    if view.tuning:
        return ("space continues" if view.paused else "space pauses, t stops and keeps what is proven"), ""
    script = "" if found.job is None else found.job.script.rsplit("/", 1)[-1]
    if found.active:
        run = f", then: autobrrr run --recipe FILE -- python {script}" if script else ""
        return f"e saves what is on as a recipe{run}", "screen.export"
    if view.regime == "measuring":
        return "nothing to do: the first verdict takes seconds", ""
    if found.regime == "unknown" and busy_words(found) and found.contention:
        return f"p measures again after {takers_named(found.contention)}", "screen.probe"
    safe = [each for each in found.advice if each.class_ != "changes-training"]
    at_start = next((each for each in safe if each.reach in BEGINS), None) if script else None
    fits = at_start is None or any(each.reach == "live" for each in found.advice)
    live = [each for each in lines(view) if each.reach == "live" and each.default]
    if live and fits and (view.tuned is None or view.failed):
        counted = "1 remedy" if len(live) == 1 else f"{len(live)} remedies"
        return f"t tries {counted} in turn; what gives no proven gain is reverted", "screen.tune"
    if at_start is not None:
        allow = f" --allow {at_start.class_}" if at_start.class_ in DARING else ""
        return (
            f"autobrrr tune --param {at_start.remedy}{allow} -- python {script} starts the script again",
            "",
        )
    return "d detaches and leaves the job as it was", "screen.detach"


def _next_of_record(view: View, found: Diagnosis) -> tuple[str, str]:
    """What may still be done about a job that was recorded."""
    own = "autobrrr attach PID shows a job of your own"
    if view.tuning:
        return f"nothing to do: a trial decides by itself; {own}", ""
    if found.active:
        return f"e saves what is on as a recipe; {own}", "screen.export"
    return (f"try {_first_to_try(found)}; {own}" if found.advice else own), ""


def _first_to_try(found: Diagnosis) -> str:
    """The first advice that a tuning would try unasked; where there is none, the first."""
    safe = [each.remedy for each in found.advice if each.class_ not in DARING]
    return next(iter([*safe, *(each.remedy for each in found.advice)]), "")


def safety(view: View) -> tuple[str, str]:
    """What the session does to the job and its results: clauses, the first says most; and the tone."""
    found = view.snapshot
    if found is None:
        return ("nothing was changed in the job" if view.over else "no remedy is on"), "plain"
    classes = _classes(view)
    kept = "".join(CLASS_WORDS[each] for each in classes[-1:])
    tone = "warn" if set(classes) & set(DARING) else "plain"
    if view.standing is ScreenStanding.LOST:
        if found.active or view.tuning:
            return "the job reverts by itself what was on; a recipe it was started with stays", "plain"
        return "no remedy was on; the job goes on without a session", "plain"
    if view.over:
        return (
            f"still on in the job: {', '.join(found.active)}; {kept}"
            if found.active
            else "no remedy is on any more"
        ), tone
    if view.tuning:
        now = view.progress.remedy if view.progress is not None else None
        class_ = next((each.class_ for each in lines(view) if each.remedy == now), "")
        said = f"; {CLASS_WORDS[class_]}" if class_ in CLASS_WORDS else ""
        return f"reverted unless it is proven faster{said}", "warn" if class_ in DARING else "plain"
    cost = "" if found.cost.share is None else f"; watching costs {share(found.cost.share)} of a step"
    if found.active:
        undo = ", d reverts" if view.acting else ""
        return f"{kept or 'what is on can be reverted'}{undo}{cost}", tone
    return f"{'read-only: nothing is changed' if view.readonly else 'no remedy is on'}{cost}", tone
