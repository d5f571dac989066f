"""Kernel work of traced steps: guards, phases, operator classes."""

import msgspec
import pytest

from autobrrr.diagnosis.models.traced_kernels import KernelWork, is_compute, kernel_work
from autobrrr.diagnosis.robust_stats import median
from autobrrr.diagnosis.signals.signal_table import read_all
from autobrrr.records import TracedSteps
from support.judged import diagnosis
from support.judged.diagnosis import MS, PHASE_SHARES, traced

replace = msgspec.structs.replace


def trusted(trace: TracedSteps) -> KernelWork:
    work = kernel_work(trace)
    assert isinstance(work, KernelWork), work
    return work


def why_not(trace: TracedSteps | None) -> str:
    work = kernel_work(trace)
    assert isinstance(work, str)
    return work


def test_kernel_work_is_given_by_step_and_by_phase() -> None:
    work = trusted(traced(kernels={"forward": 0.5, "backward": 0.25}))
    assert work.share == pytest.approx(0.38 * 0.5 + 0.4 * 0.25, abs=0.005)
    assert work.by_phase["forward"] == pytest.approx(0.5, abs=0.01)
    assert work.by_phase["optimizer"] == 0.0
    assert work.operations == 800


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        (None, "no step traced yet"),
        (TracedSteps(status="abstained", why="the user profiles"), "the user profiles"),
        (traced(wobble=(1.0, 1.0)), "2 of 3 steps were traced"),
        (traced(wobble=(0.5, 1.5) * 3, kernels=0.9, slowdown=1.2), "steps vary by"),
        (traced(slowdown=0.5), "faster than plain ones"),
        (traced(run_delay_share=0.12), "machine busy"),
        (replace(traced(kernels=0.5), kernel_ns=[MS, 2 * MS] * 3), "kernel work varies by"),
        (replace(traced(), operations=[10, 900] * 3), "number of operators varies"),
        (replace(traced(), plain_step_ns=[0] * 6), "no usable values"),
        (replace(traced(), kernel_ns=[-5] * 6), "negative"),
        (replace(traced(kernels=0.9), kernel_by_phase_ns={"forward": 1.0}), "do not add up"),
    ],
)
def test_a_guard_stops_the_trace_and_says_why(trace: TracedSteps | None, why: str) -> None:
    assert why in why_not(trace)


def test_kernel_work_that_varies_is_trusted_where_its_mean_is_known_from_many_steps() -> None:
    trace = replace(traced(wobble=(1.0,) * 84, kernels=0.5), kernel_ns=[MS, int(1.6 * MS)] * 42)
    assert trusted(trace).share == pytest.approx(0.5, abs=0.01)
    assert "kernel work varies by" in why_not(replace(trace, kernel_ns=trace.kernel_ns[:8]))


RAGGED = (0.5, 2.4, 0.6, 2.0, 0.5, 3.1)


def ragged(*, kernels: float, slowdown: float) -> TracedSteps:
    """Steps of one kind and many lengths; the agent tells kernels at the speed of the usual traced step."""
    trace = traced(wobble=RAGGED, kernels=kernels, slowdown=slowdown)
    kernel_ns = [int(kernels / slowdown * (median(trace.traced_step_ns) or 0.0))] * len(RAGGED)
    operations = [int(800 * factor) for factor in RAGGED]
    return replace(trace, kernel_ns=kernel_ns, operations=operations, plain_step_ns=trace.plain_step_ns[:4])


def test_kernels_that_lead_each_of_steps_of_many_lengths_take_at_least_their_part_of_a_traced_one() -> None:
    work = trusted(ragged(kernels=0.9, slowdown=1.2))
    assert work.at_least
    assert work.share == pytest.approx(0.9 / 1.2, abs=0.01)
    assert sum(work.plain_by_phase_ns.values()) == pytest.approx(work.step_ns)


def test_few_kernels_in_each_of_steps_of_many_lengths_take_at_most_what_dispatch_leaves_of_them() -> None:
    work = trusted(ragged(kernels=0.2, slowdown=1.5))
    assert not work.at_least
    assert 0.2 <= work.share <= 0.4


def test_steps_of_many_lengths_say_nothing_where_the_profiler_may_decide_who_leads() -> None:
    assert "steps vary by" in why_not(ragged(kernels=0.6, slowdown=1.4))


def test_one_slow_step_does_not_tilt_the_shares() -> None:
    even, tilted = traced(kernels=0.4), traced(kernels=0.4)
    slow = replace(
        tilted,
        plain_step_ns=[*tilted.plain_step_ns[:5], 5 * tilted.plain_step_ns[5]],
        plain_by_phase_ns={name: ns * 10 / 6 for name, ns in tilted.plain_by_phase_ns.items()},
    )
    assert trusted(slow).by_phase["forward"] == pytest.approx(trusted(even).by_phase["forward"], abs=0.02)
    # The other way round: the agent has left a slow step out of the phases, not out of the list.
    dropped = replace(even, kernel_ns=[*even.kernel_ns[:5], 4 * even.kernel_ns[5]])
    assert trusted(dropped).by_phase["forward"] == pytest.approx(trusted(even).by_phase["forward"], abs=0.02)


def test_matrix_products_are_compute_and_everything_else_moves_memory() -> None:
    products = ["aten.mm.default", "aten::addmm", "bmm", "aten.convolution_backward.default"]
    products += ["aten._scaled_dot_product_flash_attention_for_cpu.default", "aten.baddbmm_.default"]
    products += ["aten.mkldnn_rnn_layer.default", "aten.lstm.input"]
    products += ["aten.linalg_matrix_exp", "aten._linalg_svd.default", "aten.linalg_cholesky_ex.default"]
    others = ["aten.mul.Tensor", "aten.native_layer_norm.default", "aten.mm_x", ""]
    others += ["aten.embedding_dense_backward.default", "aten.linalg_vector_norm.default"]
    assert [op for op in products if not is_compute(op)] == []
    assert [op for op in others if is_compute(op)] == []


def test_without_phases_full_kernels_exclude_overhead_and_empty_ones_name_nothing() -> None:
    bare = {"kernel_by_phase_ns": {}, "plain_by_phase_ns": {}}
    for kernels, against in ((0.9, ("overhead",)), (0.1, ())):
        measured = diagnosis.Measurements(pid=1, traced=replace(traced(kernels=kernels), **bare))
        reading = read_all(measured)["traced_steps"]
        assert reading.says is None
        assert reading.against == against


def test_loading_and_own_code_are_not_counted_as_overhead() -> None:
    shares = PHASE_SHARES | {
        "data_wait": 0.5,
        "forward": 0.1,
        "backward": 0.1,
        "optimizer": 0.1,
        "other": 0.2,
    }
    measured = diagnosis.measured(shares=shares, kernels=0.0)
    assert read_all(measured)["traced_steps"].value == pytest.approx(0.3, abs=0.01)
