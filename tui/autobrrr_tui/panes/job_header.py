"""The lines that stand above every mode: which job, and how the screen stands to it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len

from autobrrr.quantities import clock, duration, share
from autobrrr.records import Diagnosis, limit_words
from autobrrr.records.busy_words import busy_words
from autobrrr.report.text_rows import Piece, Row, clipped, piece, row, wrapped
from autobrrr_tui.view_state import ScreenStanding, View

LEAST_ACTIVITY = 24  # cells
GONE = {
    ScreenStanding.LOST: "waiting for a new session",
    ScreenStanding.ENDED: "the session is over",
    ScreenStanding.REFUSED: "not attached",
}


def job_line(view: View, width: int) -> Row:
    """`train.py  pid 8091  cpu, 1 thread  torch 2.13.0  attached 0:42  own cost 0.44 %`.

    With little room the last words that can be missed go first, then the script's name is cut.
    """
    found = view.snapshot
    if found is None:
        return row(piece(clipped(f"  pid {view.pid}" if view.pid is not None else "  ...", width), "strong"))
    script = "?" if found.job is None else found.job.script.rsplit("/", 1)[-1]
    read_only = "  READ-ONLY" if view.readonly else ""
    for words in _wordings(found):
        tail = "  ".join(words)
        if cell_len(script) + len(read_only) + len(tail) + 4 <= width:
            break
    room = max(8, width - len(tail) - len(read_only) - 4)
    return row(
        "  ",
        piece(clipped(script, room), "strong"),
        piece(read_only, "warn"),
        clipped(f"  {tail}", width - 2 - len(read_only)),
    )


def _wordings(found: Diagnosis) -> Iterator[list[str]]:
    """What to say of a job, ever shorter."""
    facts, cost = found.job, found.cost
    which = [f"pid {found.pid}"]
    if facts is not None and facts.rank is not None:
        which.append(f"rank {facts.rank}" + (f" of {facts.world_size}" if facts.world_size else ""))
    device, torch = [], []
    if facts is not None:
        threads = "" if facts.threads is None else f", {facts.threads} thread{'s' * (facts.threads != 1)}"
        device = [("cuda" if facts.cuda else "cpu") + threads]
        torch = [f"torch {facts.torch.partition('+')[0]}" if facts.torch else "torch ?"]
    attached = [f"attached {clock(found.t_ns)}"]
    long = [f"own cost {cost.words}"] if cost.words else []
    short = [f"cost {share(cost.session_share)}"] if cost.session_share is not None else []
    yield [*which, *device, *torch, *attached, *long]
    yield [*which, *device, *torch, *attached, *short]
    yield [*which, *device, *attached, *short]
    yield [*which, *attached, *short]


def banner(view: View, width: int) -> list[Row]:
    """What is wrong, if anything: one or two rows that no mode hides."""
    if view.standing is ScreenStanding.OPENING:
        return [row(piece(clipped(f"  {view.why or 'attaching'} ...", width), "warn"))]
    if view.standing is ScreenStanding.RECORDED:
        return [row(piece(clipped(f"  a recorded session: {view.why}", width), "muted"))]
    if view.standing is ScreenStanding.LIVE:
        said = "" if view.snapshot is None else busy_words(view.snapshot)
        spoken = wrapped(f"machine {said}", width - 4, 2) if said else []
        return [row(piece(f"  {line}", "warn")) for line in spoken]
    lines = [row(piece(clipped(f"  {GONE[view.standing]}: {view.why}", width), "worse"))]
    if view.hint:
        lines.append(row(piece(clipped(f"  {view.hint}", width), "warn")))
    return lines


def brief(view: View, width: int) -> Row:
    """The verdict, step and what happens now in one line, above the modes that are not the glance."""
    found = view.snapshot
    head = f"regime: {view.regime}"
    if found is not None and found.limit != "unknown":
        head = limit_words(found.limit, found.limit_confidence, found.shares.compute)
    pieces: list[Piece] = [piece(f"  {head}", "head")]
    if found is not None:
        step = "" if found.step_ns.median is None else f"   {duration(found.step_ns.median)}/step"
        used = sum(len(text) for text, _, _ in pieces)
        if used + len(step) <= width:
            pieces.append(piece(step))
            used += len(step)
        said = f"   {activity(view)}"
        if width - used < min(LEAST_ACTIVITY, cell_len(said)):  # a word and a half of it says nothing
            said = "   tuning" if view.tuning else ""
        pieces.append(piece(clipped(said, max(0, width - used)), "muted"))
    return row(*pieces)


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
    if view.paused:
        doing = view.progress.text if view.progress is not None else "the tuner is paused"
        return f"paused: {doing}"
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
