"""A rank's timed steps as a text that fits into one value of the job's store, and back.

In: what a rank on this machine has timed, or what stands in the store, which anybody may have put there. Out:
a text of at most 4,000 bytes; or a rank of another machine, once every figure of it has been looked at. Times
are rounded to a two-thousandth of the step. Where not all steps fit, those stay whose count of collectives
is drawn: of each machine the same ones, whenever its time began or ended.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import median
from typing import Literal

import msgspec

from autobrrr.diagnosis.ranks.late_rank import TimedRank
from autobrrr.diagnosis.ranks.rank_steps import PHASES
from autobrrr.readable import readable
from autobrrr.records import CollectiveWaits, HostSample
from autobrrr.records.record_base import Record, as_record

MOST_BYTES = 4000
MOST_STEPS = 1024
NAME_CHARACTERS = 64
_PARTS_OF_STEP = 2000
_UNPACKED_BYTES = 1 << 18
_MOST = 1 << 40  # of a unit: no figure of a step is larger
_DRAW = 2654435761  # multiplied by it, whole numbers are spread over 32 bits


class _Summary(Record, frozen=True, kw_only=True):
    """What stands in the store; times in units."""

    version: Literal[1] = 1
    rank: int
    machine: str
    device: str | None = None
    throttled_share: float | None = None
    foreign_cores: float | None = None
    unit_ns: int
    first_count: int
    counts: list[int]  # beyond the step before
    end: list[int]  # the same
    step: list[int]
    exposed: list[int]
    delay: list[int]
    garbage: list[int]
    own: dict[str, list[int]]
    samples: list[int]
    tokens: list[int]
    reduced: list[int]


def packed(rank: TimedRank, machine: str) -> str | None:
    """The text; None where there is nothing that a rank of another machine could be compared with."""
    timed = rank.timed
    if rank.rank is None or timed.status != "ok" or not timed.counts:
        return None
    if len(timed.counts) != len(timed.end_ns):
        return None
    every = 1
    while True:
        kept = [index for index, count in enumerate(timed.counts) if _is_drawn(count, every)][-MOST_STEPS:]
        if len(kept) < 2:
            return None
        text = _text(rank, machine, kept)
        if len(text) <= MOST_BYTES:
            return text
        every *= 2


def unpacked(text: str) -> TimedRank:
    """The rank of another machine that has put this text.

    Raises:
        ValueError: it is none of ours, or its figures are absurd.
    """
    try:
        unzip = zlib.decompressobj()
        raw = unzip.decompress(base64.b85decode(text), _UNPACKED_BYTES)
        found = as_record(msgspec.json.decode(raw), _Summary)
    except (zlib.error, msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"no steps of a rank: {error}") from None
    times = [found.step, found.exposed, found.delay, found.garbage, *found.own.values()]
    rising = [*times, found.counts, found.end, found.reduced]
    every = [*rising, found.samples, found.tokens]
    if {len(each) for each in every} != {len(found.step)} or not 2 <= len(found.step) <= MOST_STEPS:
        raise ValueError("no steps of a rank: its columns differ in length")
    single = (found.unit_ns - 1, found.first_count, found.rank, min(found.step) - 1)
    if not (
        all(-1 <= figure < _MOST for each in (*every, single) for figure in each)
        and all(figure >= 0 for each in (*rising, single) for figure in each)
    ):
        raise ValueError("no steps of a rank: a figure is absurd")
    return _rank(found)


def _is_drawn(count: int, every: int) -> bool:
    return every == 1 or (count * _DRAW % (1 << 32)) * every < 1 << 32


def _text(rank: TimedRank, machine: str, kept: Sequence[int]) -> str:
    timed = rank.timed
    unit_ns = max(1, int(median(timed.step_ns)) // _PARTS_OF_STEP)

    def units(column: Sequence[int]) -> list[int]:
        return [round(column[index] / unit_ns) for index in kept]

    def plain(column: Sequence[int]) -> list[int]:
        return [column[index] for index in kept]

    counts = plain(timed.counts)
    summary = _Summary(
        rank=rank.rank or 0,
        machine=machine[:NAME_CHARACTERS],
        device=rank.device,
        throttled_share=None if rank.host is None else rank.host.throttled_share,
        foreign_cores=None if rank.host is None else rank.host.foreign_cores,
        unit_ns=unit_ns,
        first_count=counts[0],
        counts=_steps_of(counts),
        end=_steps_of(units(timed.end_ns)),
        step=[max(1, each) for each in units(timed.step_ns)],
        exposed=units(timed.exposed_ns),
        delay=units(timed.delay_ns),
        garbage=units(timed.garbage_ns),
        own={name: units(timed.own_by_phase_ns[name]) for name in PHASES if name in timed.own_by_phase_ns},
        samples=plain(timed.samples),
        tokens=plain(timed.tokens),
        reduced=plain(timed.reduced),
    )
    return base64.b85encode(zlib.compress(msgspec.json.encode(summary), 9)).decode()


def _steps_of(column: Sequence[int]) -> list[int]:
    return [0, *(later - earlier for earlier, later in pairwise(column))]


def _rank(found: _Summary) -> TimedRank:
    unit_ns = found.unit_ns

    def in_ns(column: Sequence[int]) -> list[int]:
        return [each * unit_ns for each in column]

    step_ns = in_ns(found.step)
    host = HostSample(
        t_ns=0,
        cpu_share=None,
        rss_bytes=None,
        threads=None,
        run_delay_share=None,
        steal_share=None,
        children_cpu_share=None,
        throttled_share=found.throttled_share,
        foreign_cores=found.foreign_cores,
    )
    timed = CollectiveWaits(
        status="ok",
        step_ns=step_ns,
        exposed_ns=[min(each, of) for each, of in zip(in_ns(found.exposed), step_ns, strict=True)],
        end_ns=in_ns(list(accumulate(found.end))),
        own_by_phase_ns={name: in_ns(found.own[name]) for name in PHASES if name in found.own},
        delay_ns=in_ns(found.delay),
        garbage_ns=in_ns(found.garbage),
        samples=found.samples,
        tokens=found.tokens,
        reduced=found.reduced,
        counts=list(accumulate(found.counts, initial=found.first_count))[1:],
    )
    return TimedRank(
        rank=found.rank,
        pid=None,
        timed=timed,
        host=host,
        device=None if found.device is None else readable(found.device, NAME_CHARACTERS),
        machine=readable(found.machine, NAME_CHARACTERS) or "another machine",
    )
