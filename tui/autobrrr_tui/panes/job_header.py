"""The lines that stand above every mode: which job, and how the screen stands to it."""

from __future__ import annotations

from rich.cells import cell_len

from autobrrr.quantities import clock, duration, share
from autobrrr.records import limit_words
from autobrrr.records.busy_words import busy_words
from autobrrr.report.text_rows import Row, clipped, piece, row, said
from autobrrr_tui.view_state import ScreenStanding, View

LEAST_ACTIVITY = 24  # cells
GONE = {
    ScreenStanding.LOST: "waiting for a new session",
    ScreenStanding.ENDED: "the session is over",
    ScreenStanding.REFUSED: "not attached",
}


def job_line(view: View, width: int) -> Row:
    """`train.py  pid 8091  cpu, 1 thread  torch 2.13.0  attached 0:42  own cost 0.44 %`.

    With little room the words that can be missed go first, then the script's name is cut.
    """
    found = view.snapshot
    if found is None:
        return row(piece(clipped(f"  pid {view.pid}" if view.pid is not None else "  ...", width), "strong"))
    facts, cost = found.job, found.cost
    script, words = "?", {"pid": f"pid {found.pid}"}
    if facts is not None:
        script = facts.script.rsplit("/", 1)[-1]
        of = f" of {facts.world_size}" if facts.world_size else ""
        threads = "" if facts.threads is None else f", {facts.threads} thread{'s' * (facts.threads != 1)}"
        words["rank"] = "" if facts.rank is None else f"rank {facts.rank}{of}"
        words["device"] = ("cuda" if facts.cuda else "cpu") + threads
        words["torch"] = f"torch {facts.torch.partition('+')[0]}" if facts.torch else "torch ?"
    words["attached"] = f"attached {clock(found.t_ns)}"
    words["cost"] = f"own cost {cost.words}" if cost.words else ""
    short = "" if cost.share is None else f"cost {share(cost.share)} + {duration(cost.one_off_ns or 0)}"
    read_only = "  READ-ONLY" if view.readonly else ""
    shorter: dict[str, str]
    for shorter in ({}, {"cost": short}, {"torch": ""}, {"device": ""}):
        words |= shorter
        tail = "  ".join(filter(None, words.values()))
        if cell_len(script) + len(read_only) + len(tail) + 4 <= width:
            break
    room = max(8, width - len(tail) - len(read_only) - 4)
    end = clipped(f"  {tail}", width - 2 - len(read_only))
    return row("  ", piece(clipped(script, room), "strong"), piece(read_only, "warn"), end)


def banner(view: View, width: int) -> list[Row]:
    """What is wrong, if anything: one or two rows that no mode hides."""
    text, tone = f"{GONE.get(view.standing, '')}: {view.why}", "worse"
    if view.standing is ScreenStanding.OPENING:
        text, tone = f"{view.why or 'attaching'} ...", "warn"
    elif view.standing is ScreenStanding.RECORDED:
        text, tone = f"a recorded session: {view.why}", "muted"
    elif view.standing is ScreenStanding.LIVE:
        busy = "" if view.snapshot is None else busy_words(view.snapshot)
        return [row("  ", *line) for line in said(f"machine {busy}" if busy else "", width - 4, "warn", 2)]
    hint = view.hint if view.standing in GONE else ""
    rows = [*said(text, width - 2, tone, 1), *said(hint, width - 2, "warn", 1)]
    return [row("  ", *line) for line in rows]


def brief(view: View, width: int) -> Row:
    """The verdict, step and what happens now in one line, above the modes that are not the glance."""
    found = view.snapshot
    head = f"  regime: {view.regime}"
    if found is None:
        return row(piece(head, "head"))
    if found.limit != "unknown":
        head = f"  {limit_words(found.limit, found.limit_confidence, found.shares.compute)}"
    step = "" if found.step_ns.median is None else f"   {duration(found.step_ns.median)}/step"
    step = step if len(head + step) <= width else ""
    doing, room = f"   {activity(view)}", max(0, width - len(head + step))
    if room < min(LEAST_ACTIVITY, cell_len(doing)):  # a word and a half of it says nothing
        doing = "   tuning" if view.tuning else ""
    return row(piece(head, "head"), step, piece(clipped(doing, room), "muted"))


LAST_FIGURES = {
    ScreenStanding.LOST: "not connected: these are the last figures",
    ScreenStanding.ENDED: "the session is over: these are its last figures",
}


def activity(view: View, *, short: bool = False) -> str:
    """What is happening right now; in short without the figures that the gain shows."""
    found = view.snapshot
    if found is not None and view.standing in LAST_FIGURES:
        return LAST_FIGURES[view.standing]
    doing = _doing(view, short)
    if view.standing is ScreenStanding.RECORDED and not view.playing:
        return f"the record is over; at its end: {doing}" if doing else "the record is over"
    return doing


def _doing(view: View, short: bool) -> str:
    found = view.snapshot
    if view.paused and found is not None:
        doing = (
            (found.activity or "").removeprefix("paused: ") if view.progress is None else view.progress.text
        )
        goes_on = "press it again to continue; " * view.acting
        return f"paused: someone pressed space on a screen; {goes_on}{doing}"
    if view.tuning and view.progress is not None:
        now = view.progress
        text = now.text
        if short and now.pairs:
            text = f"trying {now.remedy or 'all together'}"
        return f"{text} [{now.elapsed_ns / 1e9:.0f} of {now.budget_ns / 1e9:.0f} s]"
    if found is None:
        return "not attached" if view.over else view.why or "attaching"
    if view.silent_s >= 5 and view.standing is ScreenStanding.LIVE and found.state != "ended":
        return f"no step has ended for {view.silent_s:.0f} s ({found.activity})"
    return found.activity or ""
