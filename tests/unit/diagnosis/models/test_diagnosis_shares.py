"""Shares of the whole step: what is measured, what is not, and that they make one."""

import msgspec
import pytest

from autobrrr.diagnosis.models.leading import leads, leads_all, measured_shares
from autobrrr.diagnosis.models.shares import shown_phases, step_parts, step_shares
from autobrrr.diagnosis.verdict.judge import judge
from autobrrr.records import Shares
from support.judged import diagnosis
from support.judged.diagnosis import MS, measured, traced

SHARES = {"data_wait": 0.1, "forward": 0.3, "backward": 0.3, "optimizer": 0.2, "other": 0.1}
INSIDE = {"data_wait": 0.5, "forward": 0.5, "backward": 0.6, "optimizer": 0.25, "other": 0.4}


def of(**words: object) -> Shares:
    return step_shares(measured(shares=SHARES, kernels=INSIDE, **words))  # type: ignore[arg-type]


def test_each_part_of_the_step_goes_to_one_share() -> None:
    found = of(compute=0.25)
    kernels = 0.3 * 0.5 + 0.3 * 0.6 + 0.2 * 0.25 + 0.1 * 0.4
    assert found.overhead == pytest.approx(0.3 * 0.5 + 0.3 * 0.4 + 0.2 * 0.75, abs=0.01)
    assert found.input == pytest.approx(0.1, abs=0.005)
    assert found.host == pytest.approx(0.1 * 0.6, abs=0.005)
    assert found.compute == pytest.approx(0.25 * kernels, abs=0.01)
    assert found.memory == pytest.approx(0.75 * kernels, abs=0.01)
    assert found.other == pytest.approx(0.0, abs=0.01)
    assert sum(measured_shares(found).values()) == pytest.approx(1, abs=1e-9)


def test_regimes_of_a_gpu_stay_unmeasured_on_a_cpu() -> None:
    found = of()
    assert (found.sync, found.communication, found.underfilled) == (None, None, None)


def test_dispatch_between_the_phases_is_overhead_and_not_the_users_code() -> None:
    trace = traced(shares=SHARES, kernels=INSIDE, op_cost_ns=2_000)
    plain = step_shares(measured(shares=SHARES, trace=trace))
    busy = msgspec.structs.replace(trace, operations_by_phase={"other": 39.0})
    moved = step_shares(measured(shares=SHARES, trace=busy))
    assert moved.host == pytest.approx(plain.host - 0.03, abs=0.002)
    assert moved.overhead == pytest.approx(plain.overhead + 0.03, abs=0.002)


def test_without_a_trace_only_input_is_measured_and_the_rest_is_other() -> None:
    found = step_shares(measured(shares=SHARES, readonly=True))
    assert measured_shares(found) == pytest.approx({"input": 0.1, "other": 0.9}, abs=0.005)


def test_without_phases_of_enough_steps_those_of_the_trace_are_taken() -> None:
    trace = traced(shares=SHARES, kernels=INSIDE)
    found = step_shares(diagnosis.Measurements(pid=1, traced=trace))
    assert found.input == pytest.approx(0.1, abs=0.005)
    assert found.overhead == pytest.approx(of().overhead, abs=0.01)


def test_a_trace_that_fails_a_guard_leaves_no_share_behind() -> None:
    found = of(run_delay_share=0.5)
    assert (found.overhead, found.host, found.compute, found.memory) == (None, None, None, None)


def test_a_phase_that_the_trace_did_not_see_leaves_kernels_unknown() -> None:
    trace = traced(shares=SHARES, kernels=INSIDE)
    partial = {name: ns for name, ns in trace.plain_by_phase_ns.items() if name != "other"}
    found = step_shares(
        measured(shares=SHARES, trace=msgspec.structs.replace(trace, plain_by_phase_ns=partial))
    )
    assert (found.overhead, found.host) == (None, None)


def test_a_forward_that_was_not_measured_is_neither_overhead_nor_host() -> None:
    kept = {name: share for name, share in SHARES.items() if name not in ("forward", "other")}
    found = step_shares(measured(shares=kept, trace=traced(shares=SHARES, kernels=INSIDE)))
    assert (found.overhead, found.host) == (None, None)
    assert found.input == pytest.approx(0.1, abs=0.005)


def test_kernels_of_the_loader_itself_are_input_and_never_split_as_the_models() -> None:
    inside = {"data_wait": 0.3, "forward": 0.4, "backward": 0.4}
    shares = SHARES | {"data_wait": 0.6, "forward": 0.1, "backward": 0.1, "optimizer": 0.1, "other": 0.1}
    found = step_shares(measured(shares=shares, kernels=inside))
    assert found.input == pytest.approx(0.6, abs=0.01)
    assert (found.compute, found.memory) == (None, None)
    assert sum(measured_shares(found).values()) == pytest.approx(1)


def test_phases_are_shown_from_sampled_steps_else_from_the_trace() -> None:
    trace = traced(10 * MS, SHARES)
    assert shown_phases(measured(10 * MS, SHARES, trace=trace)).forward == pytest.approx(3 * MS, rel=0.01)
    alone = shown_phases(diagnosis.Measurements(pid=1, traced=trace))
    assert alone.forward == pytest.approx(3 * MS, rel=0.01)
    assert alone.host_to_device is None
    assert shown_phases(diagnosis.Measurements(pid=1)).forward is None


def test_overhead_must_lead_further_since_it_is_what_estimates_leave() -> None:
    assert leads("compute", 0.55, 0.38)
    assert not leads("overhead", 0.55, 0.38)
    assert leads("overhead", 0.60, 0.33)
    assert not leads("compute", 0.55, 0.42)
    assert not leads("overhead", 0.49, 0.01)


def test_a_regime_leads_only_where_who_it_belongs_to_leads_all_others_together() -> None:
    assert leads_all("memory", {"memory": 0.6, "host": 0.2, "overhead": 0.2})
    assert not leads_all("memory", {"memory": 0.53, "host": 0.36, "overhead": 0.11})
    assert leads_all("memory", {"memory": 0.53, "compute": 0.2, "underfilled": 0.17, "overhead": 0.1})
    assert not leads_all("compute", {"compute": 0.55, "other": 0.45})
    assert not leads_all("input", {"host": 0.9})


def test_pauses_of_forward_without_an_operator_are_the_users_own_code() -> None:
    shares = {"data_wait": 0.0, "forward": 0.9, "backward": 0.06, "optimizer": 0.04, "other": 0.0}
    step_ns = 10.0 * MS
    plain = diagnosis.measured(step_ns, shares, kernels=0.05, stacks=diagnosis.frames(host=120))
    paused = msgspec.structs.replace(plain.traced, between_ns=0.8 * step_ns)
    found = judge(diagnosis.replaced(plain, traced=paused)).verdict
    assert found.regime == "host"
    assert found.shares.host == pytest.approx(0.8, abs=0.02)
    assert judge(plain).verdict.regime != "host"
    impossible = msgspec.structs.replace(plain.traced, between_ns=9 * step_ns)
    parts = step_parts(diagnosis.replaced(plain, traced=impossible))
    assert parts.phase["forward"] >= 0
