"""Whether others take the CPUs from a job, in one sentence that every output says once.

In: a diagnosis. Out: the part of the time, and who has the CPUs meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from autobrrr.readable import readable
from autobrrr.records.session_records import CpuTaker, Diagnosis, HostSample
from autobrrr.records.verdict_records import NAMES_NOBODY

SO: Final = {"high": "; the limit still holds", "low": "; hence low confidence"}
BUSY_AT: Final = 0.10  # of the time without a CPU: from here on verdicts are lowered


def waiting_share(found: Diagnosis) -> float | None:
    """The part of the time in which the job waits for a CPU, over the last seconds; None: not measured."""
    judged = next((each.value for each in found.evidence if each.signal == "busy_machine"), None)
    now = None if found.host is None else found.host.run_delay_share
    return now if judged is None or found.state == "tuning" else judged  # a tuner's job is not judged anew


def busy_words(found: Diagnosis) -> str:
    """`busy: the job has no CPU 36 % of the time; hence low confidence`; empty where quiet."""
    waits = waiting_share(found)
    so = "" if found.limit in NAMES_NOBODY else SO[found.limit_confidence]  # "": the verdict says why
    so = "; no gain is claimed meanwhile" if found.state == "tuning" else so
    return "" if waits is None or waits < BUSY_AT else f"busy: {_words(waits, found.contention)}{so}"


def decide_words(found: Diagnosis) -> str:
    """The command that would decide. On a busy machine, it also says what must change first."""
    command = found.decide_with or ""
    return f"{command}   ({once_free(found)})" if command and busy_words(found) else command


def once_free(found: Diagnosis) -> str:
    """When it is worth measuring again."""
    if found.contention:
        return f"once its CPUs are free of {readable(takers_named(found.contention))}"
    return "once the machine is quiet, or the job uses fewer threads"


def crowd_words(samples: Sequence[HostSample], last_ns: int) -> str | None:
    """The same of the samples of the last so many ns; None: quiet, or not measured.

    A wait counts only as far as others ran meanwhile: the job's own threads, workers and ranks are none.
    """
    since_ns = max((each.t_ns for each in samples), default=0) - last_ns
    seen = [each for each in samples if each.t_ns > since_ns]
    waits = [
        min(
            each.run_delay_share,
            max(0.0, each.foreign_cores - (each.ranks_cpu_share or 0.0) - (each.children_cpu_share or 0.0)),
        )
        for each in seen
        if each.run_delay_share is not None and each.foreign_cores is not None
    ]
    share = sum(waits) / len(waits) if waits else 0.0
    takers = next((each.takers for each in reversed(seen) if each.takers), [])
    return None if share < BUSY_AT else _words(min(1.0, share), takers)


def _words(share: float, takers: Sequence[CpuTaker]) -> str:
    said = f"the job has no CPU {100 * share:.0f} % of the time"
    return f"{said}; {takers_words(takers)}" if takers else said


def takers_named(takers: Sequence[CpuTaker]) -> str:
    """`fit.py (pid 14)`; `fit.py (pid 14) and 9 more` where it has less than half of what all have."""
    first = takers[0]
    more = "" if _leads(takers) else f" and {len(takers) - 1} more"
    return f"{first.command} (pid {first.pid}){more}"


def takers_words(takers: Sequence[CpuTaker]) -> str:
    """`fit.py (pid 14) has 98 % of a core`, or `fit.py (pid 14) and 9 more have 2.0 cores in total`."""
    first, everything = takers[0].share, sum(each.share for each in takers)
    has = f"has {100 * first:.0f} % of a core" if _leads(takers) else f"have {everything:.1f} cores in total"
    return f"{takers_named(takers)} {has}"


def _leads(takers: Sequence[CpuTaker]) -> bool:
    return 2 * takers[0].share >= sum(each.share for each in takers)
