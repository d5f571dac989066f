"""Threads of the job's own that take its CPUs from each other are told from a busy machine."""

from unittest.mock import ANY

import msgspec
import pytest

from autobrrr.diagnosis.models.cpu_delay import foreign_delay
from autobrrr.diagnosis.signals.machine import busy_machine, oversubscription
from autobrrr.diagnosis.signals.signal_table import read_all
from autobrrr.diagnosis.verdict.agreement import carried
from autobrrr.diagnosis.verdict.judge import judge
from autobrrr.records import Verdict
from support.judged import diagnosis
from support.judged.diagnosis import MS, crowded_threads, machine, replaced


def verdict(measured: diagnosis.Measurements) -> Verdict:
    return judge(measured).verdict


def test_more_threads_than_cpus_are_named_overhead_with_their_numbers() -> None:
    found = verdict(crowded_threads())
    assert (found.regime, found.confidence) == ("overhead", "high"), found.reason
    assert "8 threads on 2 CPUs" in found.reason
    assert found.shares.overhead == pytest.approx(1.0, abs=0.05)
    assert found.advice[0].remedy == "threads.intra_op"
    assert "8 threads share 2 CPUs" in found.advice[0].why


def test_the_same_wait_while_others_run_is_a_busy_machine() -> None:
    for foreign_cores in (0.3, 1.6):
        found = verdict(crowded_threads(foreign_cores=foreign_cores))
        assert found.regime == "unknown", found.reason
        assert "busy" in found.reason


def test_a_wait_of_which_others_are_not_known_is_blamed_on_the_machine() -> None:
    job = crowded_threads()
    trace = msgspec.structs.replace(job.traced, foreign_cores=None)
    assert verdict(replaced(job, host=machine(run_delay_share=0.28), traced=trace)).regime == "unknown"


def test_threads_that_have_a_cpu_each_are_not_blamed() -> None:
    reading = oversubscription(crowded_threads(threads=2, cores=2))
    assert reading.says is None
    assert reading.value == pytest.approx(0.26)


def test_kernels_near_a_roof_are_no_waiting_threads_however_many_there_are() -> None:
    found = verdict(crowded_threads(bandwidth=0.75))
    assert found.regime == "memory", found.reason


def test_one_signal_alone_does_not_carry_it() -> None:
    readings = dict(read_all(crowded_threads()))
    assert [one.regime for one in carried(readings)] == ["overhead"]
    readings["oversubscription"] = oversubscription(replaced(crowded_threads(), host=(), traced=None))
    assert carried(readings) == []


@pytest.mark.parametrize(
    ("delay", "foreign", "theirs"),
    [(0.3, 0.02, 0.02), (0.3, 1.5, 0.3), (0.3, None, 0.3), (None, 0.5, None), (0.3, float("nan"), 0.3)],
)
def test_others_are_blamed_for_no_more_than_they_ran(
    delay: float | None, foreign: float | None, theirs: float | None
) -> None:
    assert foreign_delay(delay, foreign) == theirs


def test_a_sample_without_a_delay_says_nothing() -> None:
    nothing = machine(run_delay_share=None, foreign_cores=0.1)
    assert oversubscription(replaced(crowded_threads(), host=nothing, traced=None)).abstained


def test_threads_that_do_not_outnumber_the_cpus_leave_a_wait_to_the_machine() -> None:
    job = crowded_threads(threads=2, cores=2)
    assert busy_machine(job).value == pytest.approx(0.28)
    assert busy_machine(crowded_threads()).value == pytest.approx(0.02)


def test_without_a_roof_the_crowd_is_named_as_the_cause_and_the_tuner_asked() -> None:
    found = verdict(replaced(crowded_threads(), peaks=None))
    assert found.regime == "unknown"
    assert "8 threads on 2 CPUs" in found.reason
    assert "--only threads.intra_op" in (found.decide_with or "")
    assert "overhead" not in [regime for each in found.evidence for regime in each.against]


def test_peaks_that_the_crowd_itself_disturbed_still_show_what_stays_far_below_them() -> None:
    job = crowded_threads()
    low = replaced(job, peaks=msgspec.structs.replace(job.peaks, waited_share=0.7))
    assert verdict(low).regime == "overhead"
    near = crowded_threads(bandwidth=0.75)
    near = replaced(near, peaks=msgspec.structs.replace(near.peaks, waited_share=0.7))
    assert verdict(near).regime == "unknown"


@pytest.mark.parametrize(("foreign_cores", "told"), [(0.1, True), (0.9, False)])
def test_one_thread_beside_a_free_cpu_is_advised_a_second(foreign_cores: float, told: bool) -> None:
    job = diagnosis.kernel_bound(diagnosis.worked("aten.mm.default", 0.9, 10 * MS, rate=0.5), step_ns=10 * MS)
    alone = replaced(
        job, host=machine(foreign_cores=foreign_cores), facts=diagnosis.facts(threads=1), cores=2
    )
    found = [one for one in verdict(alone).advice if one.remedy == "threads.intra_op" and one.expected]
    assert [(one.options, one.interval) for one in found] == [({"threads": 2}, [1.0, ANY])] * told
