"""A busy machine: one sentence, with who has the CPUs; a quiet one has none."""

from __future__ import annotations

import msgspec
import pytest

from autobrrr.records import CpuTaker, Evidence, HostSample
from autobrrr.records.busy_words import busy_words, crowd_words, takers_named, takers_words
from autobrrr.report.text.verdict_text import verdict_text
from support.judged.diagnosis import machine
from support.judged.verdicts import OVERHEAD

TAKERS = [CpuTaker(pid=pid, command=f"fit{pid}.py", share=0.5) for pid in (7, 8, 9)]

CROWDED = "busy: the job has no CPU 36 % of the time; fit7.py (pid 7) and 2 more have 1.5 cores in total"


def judged(share: float | None) -> Evidence:
    return Evidence(signal="busy_machine", says=None, value=share, unit="share of wall time", note="")


@pytest.mark.parametrize(
    ("share", "more", "said"),
    [
        (None, {}, ""),
        (0.09, {}, ""),
        (0.36, {}, f"{CROWDED}; the limit still holds"),
        (0.36, {"limit_confidence": "low"}, f"{CROWDED}; hence low confidence"),
        (0.36, {"limit": "unknown"}, CROWDED),
    ],
)
def test_from_a_tenth_of_the_time_on_it_is_said_with_who_has_the_cpus_and_what_is_withheld(
    share: float | None, more: dict[str, object], said: str
) -> None:
    found = msgspec.structs.replace(OVERHEAD, evidence=[judged(share)], host=None, contention=TAKERS, **more)
    assert busy_words(found) == said
    tuning = msgspec.structs.replace(found, state="tuning", host=machine(share, foreign_cores=1.0)[0])
    assert busy_words(tuning) == (f"{CROWDED}; no gain is claimed meanwhile" if said else "")


def test_one_program_is_named_alone_where_it_has_half_of_what_all_have() -> None:
    most = msgspec.structs.replace(TAKERS[0], share=1.1)
    assert takers_named([most, *TAKERS[1:]]) == "fit7.py (pid 7)"
    assert takers_words([most, *TAKERS[1:]]) == "fit7.py (pid 7) has 110 % of a core"
    assert takers_named(TAKERS) == "fit7.py (pid 7) and 2 more"


def test_a_verdict_in_words_says_it_once() -> None:
    found = msgspec.structs.replace(
        OVERHEAD, regime="unknown", limit="unknown", evidence=[judged(0.7)], contention=TAKERS[:1]
    )
    text = verdict_text(found)
    assert text.count("fit7.py (pid 7)") == 1
    assert "machine       busy: the job has no CPU 70 % of the time" in text
    assert "fit7" not in verdict_text(msgspec.structs.replace(found, evidence=[judged(0.0)]))


def sampled(
    at_s: float, waits: float | None, foreign: float | None, ranks: float | None = None
) -> HostSample:
    look = machine(waits, foreign_cores=foreign)[0]
    return msgspec.structs.replace(look, t_ns=int(at_s * 1e9), ranks_cpu_share=ranks, takers=TAKERS[:1])


def test_a_crowd_counts_while_it_was_there_and_as_far_as_it_ran() -> None:
    last_ns = 4_000_000_000
    crowded = [sampled(at, 0.4, 0.97) for at in (7.0, 8.0, 9.0, 10.0)]
    assert (
        crowd_words(crowded, last_ns)
        == "the job has no CPU 40 % of the time; fit7.py (pid 7) has 50 % of a core"
    )
    before = [sampled(at, 0.4, 0.97) for at in (1.0, 2.0)] + [
        sampled(at, 0.0, 0.0) for at in (8.0, 9.0, 10.0)
    ]
    assert crowd_words(before, last_ns) is None
    by_its_own_threads = [sampled(at, 0.4, 0.01) for at in (8.0, 9.0, 10.0)]
    assert crowd_words(by_its_own_threads, last_ns) is None
    by_its_own_ranks = [sampled(at, 0.4, 0.97, ranks=0.95) for at in (8.0, 9.0, 10.0)]
    assert crowd_words(by_its_own_ranks, last_ns) is None
    by_its_own_workers = [msgspec.structs.replace(one, children_cpu_share=0.95) for one in crowded]
    assert crowd_words(by_its_own_workers, last_ns) is None
    assert crowd_words([sampled(9.0, None, None)], last_ns) is None
    assert crowd_words([], last_ns) is None
