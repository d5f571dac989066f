"""Kernels under the roofs of the machine: compute, memory or underfilled, by two signals or not at all."""

import msgspec
import pytest

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.op_classes import op_class
from autobrrr.diagnosis.models.roofs import Roofs, roofs, shape_of_product
from autobrrr.diagnosis.signal_reading import Reading
from autobrrr.diagnosis.signals.signal_table import read_all
from autobrrr.diagnosis.verdict.judge import judge
from autobrrr.records import Verdict
from support.judged import diagnosis
from support.judged.diagnosis import MS, kernel_bound, peaks_of_machine, probed, worked

STEP_NS = 20.0 * MS


def verdict(measured: Measurements) -> Verdict:
    return judge(measured).verdict


def under(measured: Measurements) -> Roofs:
    found = roofs(measured)
    assert isinstance(found, Roofs), found
    return found


def reading(measured: Measurements, signal: str) -> Reading:
    return read_all(measured)[signal]


def test_products_near_the_peak_are_compute_and_the_rate_is_told() -> None:
    found = verdict(diagnosis.products_at_peak())
    assert (found.regime, found.confidence) == ("compute", "high")
    assert "85 % of a step is matrix products" in found.reason
    assert (
        "80 GFLOP/s, 80 % of what this machine does on such shapes with 1 thread (100 at best)"
        in found.reason
    )


def test_a_rate_above_the_measured_peak_is_no_share_of_it() -> None:
    step_ns = 20.0 * diagnosis.MS
    note = reading(
        diagnosis.kernel_bound(diagnosis.worked("aten.mm.default", 0.85, step_ns, rate=1.38, bandwidth=0.1)),
        "matmul_rate",
    ).note
    assert note == "matrix products reach 138 GFLOP/s, more than was measured as this machine's peak (100)"


def slow_products(
    alone: float | None,
    *,
    op: str = "aten.convolution.default",
    calls: float = 2,
    shapes: str = "8x16x16 8x16x16",
    rate: float = 0.1,
) -> Measurements:
    """Products at that part of the peak; one such call alone takes that part of its time."""
    step_ns = 20.0 * diagnosis.MS
    one = diagnosis.worked(op, 0.85, step_ns, rate=rate, bandwidth=0.05, count=calls)
    own_ns = None if alone is None else alone * one.kernel_ns / calls
    return diagnosis.kernel_bound(msgspec.structs.replace(one, alone_ns=own_ns, shapes=shapes))


def test_products_that_are_no_faster_alone_are_compute_however_far_from_the_peak() -> None:
    found = verdict(slow_products(0.9))
    assert (found.regime, found.limit) == ("compute", "kernels")
    assert found.confidence == "low"  # the kernel may fit these shapes badly
    assert verdict(slow_products(0.9, rate=0.35)).confidence == "high"
    assert "90 % of what this machine does on such shapes" in found.reason
    assert "(100 at best; 100 % of their time against" in found.reason


@pytest.mark.parametrize(
    "measured",
    [
        slow_products(None),
        slow_products(0.4),  # something else than the kernel takes most of its time
        slow_products(0.9, op="aten.bmm.default"),  # many small products in one call
        slow_products(0.9, op="aten.mkldnn_rnn_layer.default"),
        slow_products(0.9, calls=400),  # 42 us a call
        slow_products(0.9, shapes="4x64x32x32 64x1x7x7 64"),
    ],
    ids=["not run", "faster alone", "batched", "stepped", "short", "depthwise"],
)
def test_slow_products_are_no_compute_without_a_long_call_of_their_own(measured: Measurements) -> None:
    found = verdict(measured)
    assert found.regime != "compute"
    assert found.shares.compute == 0.0


def averaged_weights(alone: float = 1.0) -> Measurements:
    """One sample, one large weight: the gradient's outer product faults in a new tensor at every step."""
    step_ns = 39.4 * MS
    outer = worked("aten.mm.default", 0.336, step_ns, phase="backward", rate=0.008, bandwidth=0.19, count=1)
    outer = msgspec.structs.replace(outer, shapes="3072x1 1x3072", alone_ns=alone * outer.kernel_ns)
    job = kernel_bound(
        outer,
        worked("aten.mm.default", 0.07, step_ns, rate=0.039, bandwidth=0.92, count=1),
        worked("aten.add_.Tensor", 0.37, step_ns, phase="optimizer", bandwidth=0.98, count=2),
        worked("aten.lerp_.Scalar", 0.17, step_ns, phase="other", bandwidth=0.98, count=1),
        step_ns=step_ns,
    )
    return diagnosis.replaced(job, minor_faults=9_217.0, fault_ns=887.0)


def test_a_product_below_the_ridge_that_is_no_faster_alone_is_memory() -> None:
    found = verdict(averaged_weights())
    assert (found.regime, found.limit) == ("memory", "kernels")
    assert found.shares.compute == 0.0
    assert reading(averaged_weights(), "traffic").says == "memory"
    told = reading(averaged_weights(), "matmul_rate")
    assert told.says is None
    assert "alone" not in told.note


def test_a_product_below_the_ridge_that_is_faster_alone_stays_underfilled() -> None:
    assert under(averaged_weights(alone=0.4)).ops[0].regime == "underfilled"


def test_products_below_the_ridge_that_neither_bytes_nor_faults_explain_are_not_named() -> None:
    slow = worked("aten.convolution.default", 0.85, STEP_NS, rate=0.02, bandwidth=0.1, count=2)
    own_ns = 0.95 * slow.kernel_ns / 2
    job = kernel_bound(msgspec.structs.replace(slow, alone_ns=own_ns, shapes="8x16x64x64 16x1x3x3"))
    found = verdict(job)
    assert found.regime == "unknown"
    assert found.shares.compute == 0.0


def test_two_rows_against_a_large_weight_are_memory_and_never_overhead_or_compute() -> None:
    found = verdict(diagnosis.skinny_products())
    assert found.regime == "memory"
    assert found.shares.compute == 0.0
    assert "matmul 75 %" in found.reason
    assert "traced_steps" in [one.signal for one in found.evidence if "overhead" in one.against]


def test_pointwise_chains_and_norms_are_memory() -> None:
    found = verdict(diagnosis.pointwise_chain())
    assert (found.regime, found.confidence) == ("memory", "high")
    assert "pointwise 60 %, norm 30 %" in found.adds
    assert "at 20 GB/s take 60 % of the step" in found.reason


def test_kernels_below_both_roofs_are_underfilled() -> None:
    found = verdict(diagnosis.small_kernels())
    assert (found.regime, found.confidence) == ("underfilled", "high")
    assert found.shares.underfilled == pytest.approx(0.8, abs=0.02)
    assert found.shares.compute == 0.0


def test_kernels_whose_shapes_were_not_read_are_no_regime_and_exclude_none() -> None:
    def unread(job: Measurements, part: float) -> Measurements:
        rest = worked("aten.mul.Tensor", part, STEP_NS)
        work = [*job.traced.work, msgspec.structs.replace(rest, shapes="", flops=None, bytes=None)]
        kernels = sum(one.kernel_ns for one in work)
        scale = 0.95 * STEP_NS / kernels
        scaled = [msgspec.structs.replace(one, kernel_ns=scale * one.kernel_ns) for one in work]
        return kernel_bound(*scaled, probe=probed(STEP_NS, fixed=0.02))

    little, much = unread(diagnosis.products_at_peak(), 0.05), unread(diagnosis.products_at_peak(), 0.6)
    assert verdict(little).regime == "compute"
    assert "memory" in reading(little, "kernel_time").against
    found = verdict(much)
    assert found.regime not in ("compute", "memory")
    assert found.shares.memory == pytest.approx(0.0, abs=0.05)
    assert (found.shares.other or 0.0) >= 0.35
    told = reading(much, "kernel_time")
    assert told.against == ()
    assert "of unknown shape" in told.note


@pytest.mark.parametrize(
    ("op", "shapes", "count", "small"),
    [
        ("aten.mul.Tensor", "64x64 64x64", 200, True),
        ("aten.bmm.default", "2048x6x6 2048x6x6", 4, True),
        ("aten.bmm.default", "8x512x512 8x512x512", 4, False),
        ("aten.mkldnn_rnn_layer.default", "64x2x16 64x16", 2, True),
        ("aten.convolution.default", "8x64x32x32 64x1x3x3", 20, False),
        ("aten.convolution.default", "64x1x28x28 32x1x3x3", 20, False),
        ("aten.convolution.default", "8x64x1000 64x64x9", 20, False),
        ("aten.convolution.default", "8x64x32x32 64x64x3x3", 20, False),
    ],
)
def test_only_what_is_small_is_underfilled(op: str, shapes: str, count: int, small: bool) -> None:
    rate = 0.0 if "mul" in op else 0.1
    slow = worked(op, 0.85, STEP_NS, rate=rate, bandwidth=0.05, count=count)
    job = kernel_bound(msgspec.structs.replace(slow, shapes=shapes), probe=probed(STEP_NS, fixed=0.4))
    found = verdict(job)
    assert found.regime == ("underfilled" if small else "unknown")
    assert "kernels far below both roofs" in found.reason


def test_operators_of_a_few_microseconds_are_not_called_underfilled_kernels() -> None:
    def job(calls: int) -> Measurements:
        bag = worked("aten._embedding_bag.default", 0.85, STEP_NS, bandwidth=0.05, count=calls)
        return kernel_bound(bag, worked("aten.mul.Tensor", 0.05, STEP_NS, bandwidth=0.9))

    assert verdict(job(200)).regime == "underfilled"
    assert verdict(job(int(STEP_NS / 5_000))).regime in ("mixed", "unknown")


def test_a_recurrent_layer_far_below_both_roofs_is_underfilled_and_not_memory() -> None:
    lstm = kernel_bound(
        worked("aten.mkldnn_rnn_layer.default", 0.85, STEP_NS, rate=0.03, bandwidth=0.04, count=1)
    )
    assert under(lstm).ops[0].regime == "underfilled"
    skinny = kernel_bound(worked("aten.mm.default", 0.85, STEP_NS, rate=0.03, bandwidth=0.7, count=4))
    assert under(skinny).ops[0].regime == "memory"


def faster_when_traced(job: Measurements) -> Measurements:
    """The same job, its traced steps faster than plain ones."""
    trace = job.traced
    times = [int(0.8 * ns) for ns in trace.plain_step_ns]
    return diagnosis.replaced(job, traced=msgspec.structs.replace(trace, traced_step_ns=times))


def test_where_traced_steps_did_less_kernels_are_a_lower_bound_and_may_still_be_named() -> None:
    found = verdict(faster_when_traced(diagnosis.pointwise_chain()))
    assert found.regime == "memory"
    assert found.shares.overhead is None
    assert found.shares.host is None
    assert found.shares.memory == pytest.approx(0.9, abs=0.02)


def test_where_traced_steps_did_less_nothing_but_kernels_is_named() -> None:
    for job in (diagnosis.tiny_mlp(), diagnosis.metrics_loop()):
        assert verdict(job).regime in ("overhead", "host")
        found = verdict(faster_when_traced(job))
        assert found.regime in ("mixed", "unknown")
        assert found.shares.overhead is None


def test_two_kinds_of_kernels_of_which_none_takes_twice_the_other_are_mixed() -> None:
    step_ns = 20.0 * MS

    def job(memory: float, compute: float) -> Measurements:
        return kernel_bound(
            worked("aten.mul.Tensor", memory, step_ns, bandwidth=0.8),
            worked("aten.addmm.default", compute, step_ns, rate=0.8, bandwidth=0.1),
        )

    assert verdict(job(0.65, 0.25)).regime == "memory"
    found = verdict(job(0.58, 0.34))
    assert found.regime == "mixed"
    assert "58 % kernels that move tensors" in found.reason
    assert "34 % matrix products" in found.reason


def test_products_at_forty_percent_have_one_signal_only_without_a_probe() -> None:
    work = worked("aten.addmm.default", 0.9, STEP_NS, rate=0.4, bandwidth=0.1)
    assert verdict(kernel_bound(work)).regime == "unknown"
    growing = kernel_bound(work, probe=probed(STEP_NS, fixed=0.05))
    assert verdict(growing).regime == "compute"


def test_slow_traffic_is_memory_only_where_page_faults_or_a_flat_probe_explain_it() -> None:
    work = worked("aten.mul.Tensor", 0.9, STEP_NS, bandwidth=0.3)
    assert verdict(kernel_bound(work)).regime == "unknown"
    flat = kernel_bound(work, probe=probed(STEP_NS, fixed=0.9))
    assert verdict(flat).regime == "memory"
    faulting = kernel_bound(work)
    assert faulting.phases is not None
    faulting = diagnosis.replaced(faulting, minor_faults=4_000.0, fault_ns=2_000.0)
    assert verdict(faulting).regime == "memory"
    assert "page faults 40 %" in reading(faulting, "traffic").note
    assert reading(faulting, "page_faults").value == pytest.approx(0.4, abs=0.01)


def test_page_faults_of_a_loader_are_not_counted_for_the_kernels() -> None:
    shares = {"data_wait": 0.3, "forward": 0.3, "backward": 0.3, "optimizer": 0.08, "other": 0.02}
    loading = diagnosis.measured(STEP_NS, shares, peaks=peaks_of_machine())
    loading = diagnosis.replaced(loading, minor_faults=4_000.0, fault_ns=2_000.0)
    from autobrrr.diagnosis.signals.kernels import fault_share

    assert fault_share(loading) is None


def test_peaks_at_another_number_of_threads_say_nothing() -> None:
    measured = diagnosis.products_at_peak()
    other = diagnosis.replaced(measured, peaks=peaks_of_machine(threads=4))
    for signal in ("traffic", "matmul_rate", "roofline"):
        assert reading(other, signal).abstained
        assert "4 threads, the job has 1" in reading(other, signal).note
    assert verdict(other).regime == "unknown"


def test_peaks_measured_beside_others_must_be_beaten_by_as_much() -> None:
    measured = diagnosis.products_at_peak()
    a_little = diagnosis.replaced(measured, peaks=peaks_of_machine(waited_share=0.2))
    half = diagnosis.replaced(measured, peaks=peaks_of_machine(waited_share=0.5))
    hardly = diagnosis.replaced(measured, peaks=peaks_of_machine(waited_share=0.7))
    assert reading(a_little, "matmul_rate").says == "compute"
    assert reading(half, "matmul_rate").says is None
    assert "measured while it was busy: run diagnose again" in reading(hardly, "matmul_rate").note
    known = peaks_of_machine(waited_share=0.7)  # as high as one thread's by itself: no higher
    alone = msgspec.structs.replace(known, matmul_flops_of_one=1.1 * known.matmul_flops / known.threads)
    assert reading(diagnosis.replaced(measured, peaks=alone), "matmul_rate").says == "compute"


def written_attention(alone: float | None) -> Measurements:
    """72 % products, 44 % of their time in calls that were run alone; the peak is doubted."""
    step_ns = 47.5 * diagnosis.MS
    long = diagnosis.worked("aten.mm.default", 0.44 * 0.72, step_ns, rate=5.4, bandwidth=0.2)
    if alone is not None:
        long = msgspec.structs.replace(long, alone_ns=alone * long.kernel_ns / long.count)
    return diagnosis.kernel_bound(
        long,
        diagnosis.worked("aten.addmm.default", 0.56 * 0.72, step_ns, rate=5.4, bandwidth=0.2),
        diagnosis.worked("aten.mul.Tensor", 0.15, step_ns, bandwidth=0.9),
        step_ns=step_ns,
        peaks=peaks_of_machine(waited_share=0.55),
    )


def test_a_doubted_peak_casts_no_doubt_on_calls_that_were_run_alone() -> None:
    job = written_attention(alone=0.9)
    assert reading(job, "matmul_rate").says == "compute"
    assert verdict(job).regime == "compute"
    for other in (written_attention(alone=None), written_attention(alone=0.2)):
        assert reading(other, "matmul_rate").says is None
        assert verdict(other).regime != "compute"


def test_without_peaks_kinds_of_operators_are_told_apart_all_the_same() -> None:
    measured = diagnosis.replaced(diagnosis.skinny_products(), peaks=None)
    found = verdict(measured)
    assert found.shares.compute == pytest.approx(0.75, abs=0.02)
    assert found.shares.underfilled is None
    assert found.regime == "unknown"
    assert "not measured yet: run diagnose" in reading(measured, "matmul_rate").note


def test_a_type_without_a_measured_peak_has_no_roof() -> None:
    odd = kernel_bound(worked("aten.mm.default", 0.9, STEP_NS, rate=0.1, bandwidth=0.0, dtype="bfloat16"))
    assert under(odd).ops[0].regime == "compute"
    assert reading(odd, "roofline").abstained
    double = kernel_bound(worked("aten.mm.default", 0.9, STEP_NS, rate=0.4, dtype="float64"))
    assert reading(double, "matmul_rate").value == pytest.approx(0.8)


def test_operators_that_were_not_listed_are_left_to_other() -> None:
    measured = kernel_bound(worked("aten.mm.default", 0.9, STEP_NS, rate=0.8))
    trace = measured.traced
    half = [msgspec.structs.replace(trace.work[0], kernel_ns=0.45 * STEP_NS)]
    found = verdict(diagnosis.replaced(measured, traced=msgspec.structs.replace(trace, work=half)))
    assert found.shares.compute == pytest.approx(0.45, abs=0.01)
    assert found.shares.other == pytest.approx(0.45, abs=0.03)


@pytest.mark.parametrize(
    ("op", "phase", "kind"),
    [
        ("aten.addmm.default", "forward", "matmul"),
        ("aten.mm.default", "optimizer", "matmul"),
        ("aten.mul_.Tensor", "optimizer", "optimizer"),
        ("aten.native_layer_norm_backward.default", "backward", "norm"),
        ("aten._softmax.default", "forward", "norm"),
        ("aten.embedding_dense_backward.default", "backward", "embedding"),
        ("aten.index.Tensor", "forward", "embedding"),
        ("aten._to_copy.default", "forward", "copy"),
        ("aten.cat.default", "forward", "copy"),
        ("aten.sum.dim_IntList", "forward", "reduction"),
        ("aten.gelu.default", "forward", "pointwise"),
        ("aten.normal_.default", "forward", "pointwise"),
    ],
)
def test_operators_have_classes(op: str, phase: str, kind: str) -> None:
    assert op_class(op, phase) == kind


@pytest.mark.parametrize(
    ("op", "shapes", "product"),
    [
        ("aten.mm.default", "8x3 3x5", (8, 5, 3)),
        ("aten.addmm.default", "5 8x3 3x5", (8, 5, 3)),
        ("aten.bmm.default", "2x8x3 2x3x5", None),
        ("aten.mm.default", "8x3", None),
        ("aten.mm.default", "odd", None),
    ],
)
def test_the_shape_of_a_product_is_read(op: str, shapes: str, product: tuple[int, int, int] | None) -> None:
    one = msgspec.structs.replace(worked(op, 0.5, STEP_NS), shapes=shapes)
    assert shape_of_product(one) == product


@pytest.mark.parametrize(("op_cost_ns", "short"), [(1_650, False), (5_900, True)])
def test_how_short_a_call_must_be_to_be_dispatch_depends_on_what_dispatch_costs_here(
    op_cost_ns: int, short: bool
) -> None:
    # Tiny tables of clicks on a machine that had become three times slower: 24 us a call.
    step_ns = 4.0 * MS
    job = kernel_bound(worked("aten.mul.Tensor", 0.8, step_ns, bandwidth=0.1, count=133), step_ns=step_ns)
    traced = msgspec.structs.replace(job.traced, op_cost_ns=op_cost_ns)
    measured = diagnosis.replaced(job, traced=traced)
    assert under(measured).unclear == pytest.approx(float(short))
    assert read_all(measured)["roofline"].says == (None if short else "underfilled")
