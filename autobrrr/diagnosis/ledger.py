"""The ledger: where one step goes, in rows that sum to it, down to the user's own lines.

In: sampled stacks of training and of its workers, phases by their clock, traced steps, the collector's clock.
Out: `records.LedgerRow`s, and of these the functions that the user can change. Stacks weigh by the time since
the look before; the collector's time is exact, and comes off the line that calls it, else off all rows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec
import numpy as np

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements, once
from autobrrr.diagnosis.models.held_phase import held_phase
from autobrrr.diagnosis.models.sampled_frames import is_loading, placed, sites
from autobrrr.diagnosis.models.shares import MODEL_PHASES, PHASES, garbage_share, step_parts
from autobrrr.diagnosis.models.trends import trends, work_grows
from autobrrr.diagnosis.models.window_parts import window_parts
from autobrrr.diagnosis.robust_stats import positive
from autobrrr.diagnosis.signals.machine import busy_machine
from autobrrr.records import FrameCount, FrameSamples, LedgerRow, Trend, Where

STACKS, WORKERS, CLOCK, COLLECTOR = "stacks", "workers' stacks", "phase clock", "collector's clock"
T = TypeVar("T")
GARBAGE, OPERATORS, PYTHON, SLEEPS = "garbage", "operators", "python", "sleeps"
EITHER = "Python or operators"  # until a trace tells which
WAITS, WORKER = "waits for workers", "loader worker"
SAMPLER, WORKER_START, LOADS = "sampler", "worker start", "loads"
COLLECTS = "calls collect"
LOADING = (SAMPLER, WORKER_START, WORKER, WAITS, LOADS, "collate")
MOST_ROWS = 40
FEWEST_LOOKS = 4  # at a line, for it to be named


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Time of one kind at one place, before it is part of a step."""

    phase: str
    kind: str
    where: str | None
    share: float
    source: str = STACKS
    looks: int = 0
    own: bool = True


@once
def ledger(measured: Measurements) -> list[LedgerRow]:
    """The whole step, the costliest first; empty where no step was measured."""
    step_ns = _step_ns(measured)
    if step_ns is None or measured.outside:
        return []
    rows = [
        LedgerRow(
            phase=one.phase,
            kind=one.kind,
            where=one.where,
            ns=int(one.share * step_ns),
            share=round(one.share, 4),
            source=one.source,
            error=round(_error(measured, one.share), 4) if one.source == STACKS else None,
        )
        for one in sorted(_spent(measured), key=lambda one: -one.share)[:MOST_ROWS]
        if int(one.share * step_ns) > 0
    ]
    rest_ns = step_ns - sum(row.ns for row in rows)
    why = "small parts" if rows else "neither stacks nor phases were measured"
    share = round(rest_ns / step_ns, 4)
    rest = LedgerRow(phase="other", kind="unseen", where=None, ns=rest_ns, share=share, source=why)
    return rows + [rest] * (rest_ns > 0)


@once
def wheres(measured: Measurements) -> list[Where]:
    """Functions of the user's, the costliest first; calls that only run the model come after the rest.

    The loop's line that calls backward comes after the function that it goes back through.
    A function that trains is told line by line, and a line with forward and backward as two. A line that also
    updates is a library's training, and not told at all.
    """
    found: dict[tuple[object, ...], list[Spent]] = defaultdict(list)
    lines, loops = _trains(measured.frames, str), _loops(measured)
    for one in _spent(measured):
        phases = lines.get(one.where or "", ())
        if one.where is not None and one.own and "optimizer" not in phases:
            found[(*_key(one.where, loops), one.phase in phases and one.phase)].append(one)
    rows = [
        _where(measured, parts) for parts in found.values() if sum(one.looks for one in parts) >= FEWEST_LOOKS
    ]
    told = [row for row in rows if row.share >= thresholds.WHERE_AT]

    repeats = {site.where for site in sites(measured, "repeats backward") if site.samples > 0}

    def in_loop(row: Where) -> bool:
        return row.function == "<module>" or (row.file, row.function) in loops

    recorded = max((row.share for row in told if row.phase == "forward" and not in_loop(row)), default=1.0)

    def order(row: Where) -> tuple[bool, float, bool]:
        goes_back = row.phase == "backward" and in_loop(row) and row.place not in repeats
        return not _is_own_work(row), -min(row.share, recorded if goes_back else 1.0), goes_back

    return sorted(told, key=order)[: thresholds.MOST_WHERE]


def where_of(measured: Measurements, place: str) -> Where | None:
    """The row that a line of the user's is part of."""
    key = _key(place, _loops(measured))
    return next((row for row in wheres(measured) if _key(row.place, _loops(measured)) == key), None)


def row_of_loop(measured: Measurements, place: str) -> Where | None:
    """The row that a loop's first line is part of, or else, where each line has one, the first inside it."""
    file, line, function = placed(place)
    inside = [one for one in wheres(measured) if (one.file, one.function) == (file, function)]
    below = [one for one in inside if one.line > line]
    return where_of(measured, place) or min(below, key=lambda one: one.line, default=None)


@once
def placed_trends(measured: Measurements) -> list[Trend]:
    """What changes with time, with the user's line that has most of it.

    Steps grow by what others do, too: beside others only with much code of the user's that may be the cause,
    or with more operators in each.
    """
    # In few looks we are who took them, as we attach.
    known = [one.foreign_cores for one in measured.host if one.foreign_cores is not None]
    alone = bool(known) and float(np.quantile(known, 0.75)) <= thresholds.ALONE_AT
    places = [place for place in (measured.frames.places if measured.frames else []) if place.long_ns > 0]
    much = [row for row in wheres(measured) if row.share >= thresholds.OWN_WORK_AT]
    rows = [row for row in much if _is_own_work(row) or work_grows(measured)]
    own = rows[0].place if rows else None
    busy = (busy_machine(measured).value or 0.0) >= thresholds.WITHHELD_AT
    theirs = (
        alone or work_grows(measured) or (not busy and bool(rows) and rows[0].share >= thresholds.EXCLUDED_AT)
    )
    seldom = None if measured.evaluated else own  # what usual steps do says nothing of an evaluation
    at = {
        ("step", "periodic"): max(places, key=lambda place: place.long_ns).where if places else seldom,
        ("step", "grows"): own,
    }
    found = [one for one in trends(measured) if theirs or (one.what, one.kind) != ("step", "grows")]
    if own is None:  # the one line that takes as much as steps grew by
        grown = [1 - one.first / one.last for one in found if (one.what, one.kind) == ("step", "grows")]
        may = [row.place for row in wheres(measured) if grown and row.share >= grown[0]]
        at["step", "grows"] = may[0] if len(may) == 1 else None
    return [msgspec.structs.replace(one, where=at.get((one.what, one.kind))) for one in found]


@once
def loading_parts(measured: Measurements) -> dict[str, Spent]:
    """Waiting for data by what is done meanwhile, each with all its share and its costliest line.

    Empty where the stacks don't tell: of an agent that does not know torch's loader.
    """
    found: dict[str, Spent] = {}
    for one in _spent(measured):
        if one.kind not in LOADING or one.source == CLOCK:
            continue
        before = found.get(one.kind)
        share = one.share + (0.0 if before is None else before.share)
        top = one if before is None or one.looks > before.looks else before
        found[one.kind] = replace(top, share=share)
    return found


def _error(measured: Measurements, share: float) -> float:
    """Two standard errors of a share of all looks."""
    looks = 0 if measured.frames is None else measured.frames.samples
    return 2 * math.sqrt(max(0.0, share * (1 - share)) / looks) if looks else 1.0


def _is_own_work(row: Where) -> bool:
    calls_model = row.phase in MODEL_PHASES and row.does not in (PYTHON, SLEEPS)
    return not calls_model and row.share >= thresholds.OWN_WORK_AT


def _loops(measured: Measurements) -> set[tuple[str, str]]:
    """Functions that train, by file and name."""
    return set(_trains(measured.frames, lambda where: placed(where)[::2]))


def _key(where: str, loops: set[tuple[str, str]]) -> tuple[str, str, int]:
    """What is told as one: a function, or a line of the loop."""
    file, line, function = placed(where)
    return file, function, line if function == "<module>" or (file, function) in loops else 0


def _where(measured: Measurements, parts: list[Spent]) -> Where:
    top = max(parts, key=lambda one: one.share)
    share = min(1.0, sum(one.share for one in parts))
    file, line, function = placed(top.where or "")
    error = round(_error(measured, share), 4)
    return Where(
        file=file,
        line=line,
        function=function,
        share=round(share, 4),
        error=error,
        phase=top.phase,
        does=top.kind,
    )


def _trains(frames: FrameSamples | None, of: Callable[[str], T]) -> dict[T, set[str]]:
    """What of the user's runs several of forward, backward and update, by a name for their places."""
    phases: dict[T, set[str]] = defaultdict(set)
    for place in frames.places if frames is not None else ():
        if place.phase in MODEL_PHASES and place.samples >= 2:
            phases[of(place.where)].add(place.phase)
    return {name: found for name, found in phases.items() if len(found) >= 2}


def _step_ns(measured: Measurements) -> int | None:
    if measured.phases is not None and measured.phases.step_ns > 0:
        return measured.phases.step_ns
    mean_ns = int(measured.step_ns.mean()) if len(measured.step_ns) else 0
    return mean_ns if mean_ns > 0 else None


@once
def _spent(measured: Measurements) -> list[Spent]:
    if _step_ns(measured) is None and not measured.seen:  # until one ends, stacks may be of the start
        return []
    frames = measured.frames
    found = []
    if frames is not None and frames.samples >= thresholds.FRAME_SAMPLES:
        found = _from_stacks(measured, frames)
    busy = (busy_machine(measured).value or 0.0) >= thresholds.WITHHELD_AT
    if not found or busy or window_parts(measured) is not None:
        found = _by_clocks(measured, found)
    return _with_garbage(measured, found)


def _by_clocks(measured: Measurements, looks: list[Spent]) -> list[Spent]:
    """Each phase as long as its clock says, shared out by the looks into it.

    Where others have the CPUs, most looks fall where the job waits for one; into a graph's kernels none do.
    """
    parts = step_parts(measured)
    if parts is None:
        return looks
    # What no clock measures, as forward in compiled code, is part of "other".
    within = [(row, row.phase if row.phase in parts.phase else "other") for row in looks]
    seen = {name: sum(row.share for row, at in within if at == name) for name in parts.phase}
    shared = [
        replace(row, share=row.share * parts.phase[at] / seen[at]) for row, at in within if seen.get(at)
    ]
    return shared + [
        Spent(phase=name, kind=_work(measured, name), where=None, share=share, source=CLOCK)
        for name, share in parts.phase.items()
        if not seen[name]
    ]


def _from_stacks(measured: Measurements, frames: FrameSamples) -> list[Spent]:
    weigh: Callable[[FrameCount], int] = (
        (lambda place: place.ns) if frames.ns > 0 else lambda place: place.samples
    )
    whole = max(1, sum(map(weigh, frames.places)))
    work = {name: _work(measured, name) for name in PHASES}
    found: dict[tuple[str, str, str, bool], list[float]] = defaultdict(lambda: [0.0, 0])
    for place in frames.places:
        kind = _kind(place, work)
        entry = found[place.phase, kind, place.where, place.own]
        entry[0] += weigh(place) / whole
        entry[1] += place.samples
    rows = [
        Spent(phase=phase, kind=kind, where=where, share=share, looks=int(looks), own=own)
        for (phase, kind, where, own), (share, looks) in found.items()
    ]
    return _of_workers(frames, rows)


def _kind(place: FrameCount, work: Mapping[str, str]) -> str:
    if place.in_collective:
        return "waits for ranks"
    if place.does:
        return place.does
    if is_loading(place):
        return LOADS
    if place.in_between * 2 > place.samples:
        return OPERATORS
    kind = work.get(place.phase, PYTHON)
    # Looks are so far apart that a thread which waits for many short answers ran between most of them.
    sleeps = place.stayed >= FEWEST_LOOKS and place.asleep >= thresholds.EXCLUDED_AT * place.stayed
    return SLEEPS if kind == PYTHON and sleeps else kind


def _work(measured: Measurements, phase: str) -> str:
    """Whether operators explain most of a phase; Python does what they do not."""
    if phase not in (*MODEL_PHASES, "other"):
        return LOADS
    held = held_phase(measured)
    if held is not None and held.phase == phase:
        return PYTHON
    traced, parts = measured.traced, step_parts(measured)
    if traced is None or parts is None or parts.kernels is None:
        return OPERATORS if phase in MODEL_PHASES else EITHER
    cost_ns, count = positive(traced.op_cost_ns) or 0.0, traced.operations_by_phase.get(phase) or 0.0
    inside = parts.kernels.get(phase, 0.0) + count * cost_ns / parts.step_ns
    share = parts.phase.get(phase, 0.0)
    if phase in MODEL_PHASES or (share > 0 and inside >= thresholds.EXPLAINED_AT * share):
        return OPERATORS
    return PYTHON


def _of_workers(frames: FrameSamples, rows: list[Spent]) -> list[Spent]:
    """Waiting for workers, by what these do meanwhile."""
    busy = sum(count for _, count in frames.workers)
    if busy < thresholds.FRAME_SAMPLES:
        return rows
    found = []
    for row in rows:
        if row.kind != WAITS:
            found.append(row)
            continue
        # A worker that has nothing to do is not what is waited for: its share stays with the wait.
        working = min(1.0, busy / max(1, frames.worker_looks))
        for where, count in frames.workers:
            share = row.share * working * count / busy
            found.append(
                Spent(phase=row.phase, kind=WORKER, where=where, share=share, source=WORKERS, looks=count)
            )
        found.append(replace(row, share=row.share * (1 - working)))
    return found


def _with_garbage(measured: Measurements, rows: list[Spent]) -> list[Spent]:
    share = garbage_share(measured)
    if share is None or share < thresholds.GARBAGE_SHOWN_AT:
        return rows
    at = collecting_line(measured)
    callers = [row for row in rows if at is not None and row.where == at]
    theirs = sum(row.share for row in callers)
    left = max(0.0, share - theirs)
    others = max(1e-9, sum(row.share for row in rows) - theirs)
    found = []
    for row in rows:
        kept = 1 - min(1.0, share / theirs) if row in callers else 1 - min(1.0, left / others)
        found.append(replace(row, share=row.share * kept))
    phase, looks = callers[0].phase if callers else "other", FEWEST_LOOKS if at is not None else 0
    taken = Spent(phase=phase, kind=GARBAGE, where=at, share=share, source=COLLECTOR, looks=looks)
    return [*found, taken]


def collecting_line(measured: Measurements) -> str | None:
    """The line of the user's that calls `gc.collect` where the stacks found it."""
    return next((site.where for site in sites(measured, COLLECTS) if site.samples > 0), None)
