"""Costly lines of a known kind have an edit, those of `ledger_edits.toml`, with what it would bring."""

import dataclasses

import msgspec
import numpy as np
import pytest

from autobrrr.diagnosis.advice.ledger_edits import ledger_edits
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.verdict.judge import judge
from autobrrr.records import CodeSite, FrameCount, FrameSamples, TracedSteps
from support.judged import diagnosis
from support.judged.diagnosis import (
    MS,
    an_op,
    frames,
    machine,
    measured,
    traced,
)

HEAD = "addmm forward 900 400x64 64x900"
TARGETS = ["scatter_.value forward 32x900", "mul.Tensor forward 32x900 32x900"]
ENLARGED = [
    "upsample_nearest2d_backward backward 4x96x32x32",
    "convolution forward 4x96x32x32 6x96x1x1 6",
]


@pytest.mark.parametrize(
    ("what", "edit", "removed", "samples", "share"),
    [
        ("calls collect", "edit.gc_collect", 1.0, 55, 0.4),
        ("calls torch.save", "edit.save_less_often", 0.9, 55, 0.4),
        ("calls pandas", "edit.rows_once", 0.9, 55, 0.4),
        ("calls isnan", "edit.one_check", 0.9, 55, 0.4),
        # Only what the call takes itself.
        ("calls tensor", "edit.stack_first", 0.75, 30, 0.2),
        ("calls array", "edit.keep_array", 0.75, 30, 0.2),
        ("calls sort", "edit.partial_sort", 0.6, 30, 0.2),
        ("calls numpy.__getitem__", "edit.unpack_once", 0.9, 30, 0.2),
        ("calls json", "edit.parse_once", 0.9, 30, 0.2),
        ("calls randint", "edit.draw_at_once", 0.9, 30, 0.2),
        ("validates", "edit.validate_args", 0.9, 30, 0.2),
        ("prints", "edit.print_less", 0.9, 30, 0.2),
        ("calls copy.deepcopy", "edit.copy_less", 0.9, 30, 0.2),
    ],
)
def test_a_known_line_has_its_edit(what: str, edit: str, removed: float, samples: int, share: float) -> None:
    code = [CodeSite(what=what, where="train.py:77 log_metrics", samples=samples)]
    job = dataclasses.replace(diagnosis.tiny_mlp(), frames=frames(host=60, model=90, code=code))
    (found,) = [one for one in judge(job).verdict.advice if one.remedy == edit]
    assert found.expected == pytest.approx(1 / (1 - removed * share), rel=0.01)
    assert found.why.startswith(f"train.py:77 log_metrics takes {100 * share:.0f} % of the step")


def test_nothing_is_said_of_a_line_that_prints_what_a_device_still_computes() -> None:
    code = [CodeSite(what="prints", where="train.py:77 log_metrics", samples=30)]
    job = dataclasses.replace(diagnosis.tiny_mlp(), frames=frames(host=60, model=90, code=code))
    assert "edit.print_less" in {one.remedy for one in ledger_edits(job)}
    on_device = dataclasses.replace(job, facts=diagnosis.facts(device="cuda:0"))
    assert "edit.print_less" not in {one.remedy for one in ledger_edits(on_device)}
    shares = {"data_wait": 0.0, "forward": 0.1, "backward": 0.1, "optimizer": 0.1, "other": 0.7}
    waits = measured(8 * MS, shares, stacks=frames(host=110, model=40))  # in loss.item(), if on a device
    assert "edit.less_often" in advised(waits)
    assert advised(dataclasses.replace(waits, facts=on_device.facts)) == {}


def test_no_gain_is_predicted_of_weights_that_a_step_may_read_once() -> None:
    code = [CodeSite(what="parametrizes", where="train.py:77 log_metrics", samples=30)]
    job = dataclasses.replace(diagnosis.tiny_mlp(), frames=frames(host=60, model=90, code=code))
    advice = judge(job).verdict.advice
    (found,) = [one for one in advice if one.remedy == "edit.cache_parametrization"]
    assert found.expected is None
    assert found is not advice[0]


@pytest.mark.parametrize(
    ("operators", "delay", "edit"),
    [
        *((900.0, 0.0, "edit.vectorize"), (600.0, 0.0, "edit.less_often"), (60.0, 0.0, "edit.less_often")),
        (600.0, 0.5, "edit.vectorize"),  # others had the CPU for half of each step
    ],
)
def test_a_loop_has_operators_its_phase_could_not_hold(operators: float, delay: float, edit: str) -> None:
    shares = {"data_wait": 0.0, "forward": 0.1, "backward": 0.3, "optimizer": 0.1, "other": 0.5}
    trace = traced(8 * MS, shares, kernels=0.1, operations_by_phase={"other": operators, "backward": 800.0})
    code = [CodeSite(what="loops", where="train.py:77 log_metrics", samples=55)]
    stacks = frames(host=60, model=90, code=code)
    job = measured(8 * MS, shares, trace=trace, stacks=stacks, host=machine(run_delay_share=delay))
    advice = judge(job).verdict.advice
    (found,) = [one for one in advice if one.remedy in ("edit.vectorize", "edit.less_often")]
    assert (found.remedy, found.class_) == (edit, "rounding" if edit == "edit.vectorize" else "stream")
    assert found.expected == pytest.approx(
        1 / (1 - (0.5 if edit == "edit.vectorize" else 0.9) * 0.4), rel=0.01
    )


@pytest.mark.parametrize(("tensors", "told"), [(20, True), (400, False)])
def test_a_loss_in_a_loop_is_told_beside_a_model_of_few_layers(tensors: int, told: bool) -> None:
    shares = {"data_wait": 0.0, "forward": 0.35, "backward": 0.5, "optimizer": 0.05, "other": 0.1}
    counts = {"forward": 3000.0, "other": 40.0, "backward": 6000.0}
    trace = traced(200 * MS, shares, kernels=0.6, op_cost_ns=6_000, operations_by_phase=counts)
    code = [CodeSite(what="loops", where="train.py:77 log_metrics", samples=24)]
    job = measured(200 * MS, shares, trace=trace, stacks=frames(host=24, model=176, code=code))
    job = dataclasses.replace(job, anatomy=diagnosis.anatomy(tensors=tensors))
    assert ("edit.vectorize" in advised(job)) == told


def test_a_line_inside_a_loop_has_the_edit_of_the_loop_alone() -> None:
    shares = {"data_wait": 0.0, "forward": 0.1, "backward": 0.2, "optimizer": 0.1, "other": 0.6}
    trace = traced(8 * MS, shares, kernels=0.1, operations_by_phase={"other": 1500.0, "backward": 100.0})
    places = [
        FrameCount(where=f"train.py:{line} main", phase=phase, in_loader=False, samples=samples)
        for line, phase, samples in (
            (30, "forward", 20),
            (31, "backward", 20),
            (40, "other", 6),
            (41, "other", 54),
        )
    ]
    code = [CodeSite(what="loops", where="train.py:40 main", samples=60)]
    job = measured(8 * MS, shares, trace=trace, stacks=FrameSamples(samples=100, places=places, code=code))
    assert {"edit.vectorize", "edit.less_often"} & advised(job).keys() == {"edit.vectorize"}
    no_loop = msgspec.structs.replace(job.frames, code=[])
    assert "edit.less_often" in advised(dataclasses.replace(job, frames=no_loop))


def advised(job: Measurements) -> dict[str, float | None]:
    return {one.remedy: one.expected for one in ledger_edits(job)}


def test_a_loop_in_forward_is_told_with_its_part_of_backward() -> None:
    shares = {"data_wait": 0.0, "forward": 0.4, "backward": 0.4, "optimizer": 0.1, "other": 0.1}
    code = [CodeSite(what="loops", where="model.py:12 forward", samples=40)]
    stacks = frames(host=60, model=40, code=code)
    trace = traced(8 * MS, shares, operations_by_phase={"forward": 1500.0, "backward": 2000.0})
    many = TracedSteps(status="abstained", why="too many operators", operations=[4000])
    few = msgspec.structs.replace(many, operations=[200])
    for one, told in ((trace, True), (many, True), (few, False)):
        gain = advised(measured(8 * MS, shares, trace=one, stacks=stacks)).get("edit.vectorize")
        assert gain == (pytest.approx(1 / (1 - 0.5 * 0.8), rel=0.02) if told else None)


@pytest.mark.parametrize(("operators", "told"), [(1500.0, True), (300.0, False)])
def test_a_loop_of_layers_is_told_where_it_calls_each_many_times(operators: float, told: bool) -> None:
    shares = {"data_wait": 0.0, "forward": 0.5, "backward": 0.3, "optimizer": 0.1, "other": 0.1}
    places = [
        FrameCount(where=f"train.py:{line} train", phase=phase, in_loader=False, samples=samples)
        for line, phase, samples in ((48, "forward", 20), (60, "backward", 60), (62, "optimizer", 20))
    ]
    code = [CodeSite(what="layers", where="train.py:47 train", samples=50)]
    trace = traced(8 * MS, shares, op_cost_ns=6_000, operations_by_phase={"forward": operators})
    job = measured(8 * MS, shares, trace=trace, stacks=FrameSamples(samples=100, places=places, code=code))
    job = dataclasses.replace(job, anatomy=diagnosis.anatomy(tensors=50))
    gain = pytest.approx(1 / (1 - 0.5 * 0.8), rel=0.02) if told else None  # and all of backward
    assert advised(job).get("edit.vectorize") == gain


@pytest.mark.parametrize(("fixed", "told"), [(0.9, True), (0.2, False)])
def test_kernels_without_a_weight_are_to_be_run_once(fixed: float, told: bool) -> None:
    work = [msgspec.structs.replace(an_op("mm", 9e6), fixed_ns=9e6 * fixed, phase="forward")]
    job = dataclasses.replace(diagnosis.kernel_bound(*work), frames=frames(host=10, model=90))
    assert ("edit.compute_once" in advised(job)) == told
    assert job.frames is not None
    code = [CodeSite(what="unused graphs", where="model.py:12 forward", samples=50)]
    teacher = dataclasses.replace(job, frames=msgspec.structs.replace(job.frames, code=code))
    assert "edit.compute_once" not in advised(teacher)


@pytest.mark.parametrize(("again", "told"), [(0.5, True), (0.1, False)])
def test_what_a_step_computes_twice_is_to_be_kept(again: float, told: bool) -> None:
    work = [msgspec.structs.replace(an_op("mm", 9e6), repeated_ns=9e6 * again, phase="forward")]
    job = dataclasses.replace(diagnosis.kernel_bound(*work), frames=frames(host=10, model=90))
    assert ("edit.keep_result" in advised(job)) == told


def test_python_within_the_model_is_to_be_run_once() -> None:
    shares = {"data_wait": 0.0, "forward": 0.97, "backward": 0.02, "optimizer": 0.01, "other": 0.0}
    places = [FrameCount(where="model.py:12 hook", phase="forward", in_loader=False, samples=120)]
    stacks = FrameSamples(samples=120, places=places)
    job = measured(53 * MS, shares, kernels=0.01, operations_by_phase={"forward": 36.0}, stacks=stacks)
    assert advised(job)["edit.compute_once"] == pytest.approx(1 / (1 - 0.9), rel=0.05)


@pytest.mark.parametrize(("unread", "told"), [(0.4, True), (0.1, False)])
def test_an_evaluation_in_each_step_is_told_where_only_numbers_come_of_its_calls(
    unread: float, told: bool
) -> None:
    code = [CodeSite(what="without gradients", where="train.py:35 error", samples=40)]
    work = [msgspec.structs.replace(an_op("addmm", 9e6), unread_ns=9e6 * unread)]
    job = diagnosis.kernel_bound(*work)
    job = dataclasses.replace(job, frames=frames(host=10, model=90, code=code))
    assert advised(job).get("edit.evaluate_less") == (
        pytest.approx(1 / (1 - 0.9 * 0.4), abs=1e-3) if told else None
    )


def test_calls_of_one_row_are_told_with_the_python_around_them() -> None:
    code = [CodeSite(what="calls by row", where="train.py:63 collect", samples=70)]
    job = between_phases(frames(host=60, model=40, code=code))
    assert advised(job).keys() & {"edit.fewer_calls", "edit.less_often"} == {"edit.fewer_calls"}


def test_rows_that_one_backward_goes_through_are_told_with_their_loop_and_its_part_of_backward() -> None:
    shares = {"data_wait": 0.0, "forward": 0.3, "backward": 0.4, "optimizer": 0.1, "other": 0.2}
    by_row = CodeSite(what="trains by row", where="model.py:12 forward", samples=30)
    loop = CodeSite(what="loops", where="model.py:11 forward", samples=40)
    trace = traced(8 * MS, shares, operations_by_phase={"forward": 1500.0, "backward": 2000.0})
    for code, share in (([by_row], 0.3 + 30 / 40 * 0.4), ([by_row, loop], 0.3 + 0.4)):
        stacks = frames(host=60, model=40, code=code)
        found = advised(measured(8 * MS, shares, trace=trace, stacks=stacks))
        assert found.get("edit.fewer_calls") == pytest.approx(1 / (1 - 0.75 * share), rel=0.01)
        assert "edit.vectorize" not in found


@pytest.mark.parametrize(
    ("batch", "workers", "told"), [(1024, 0, True), (64, 0, False), (1024, 2, False), (None, 0, False)]
)
def test_items_that_take_microseconds_are_to_be_picked_by_the_batch(
    batch: int | None, workers: int, told: bool
) -> None:
    shares = {"data_wait": 0.4, "forward": 0.2, "backward": 0.3, "optimizer": 0.1}
    read = FrameCount(where="train.py:9 main", phase="data_wait", in_loader=True, does="loads", samples=60)
    joined = msgspec.structs.replace(read, does="collate", samples=20)
    stacks = FrameSamples(samples=200, places=[*frames(model=120).places, read, joined])
    job = measured(20 * MS, shares, stacks=stacks, build=diagnosis.anatomy(workers=workers))
    assert job.phases is not None
    job = dataclasses.replace(job, phases=dataclasses.replace(job.phases, batch=batch))
    edits = advised(job).keys() & {"edit.index_batches", "edit.cheaper_items"}
    assert edits == {"edit.index_batches" if told else "edit.cheaper_items"}


def test_work_of_a_known_call_has_no_general_edit_beside_that_calls() -> None:
    work = [msgspec.structs.replace(an_op("mm", 9e6), fixed_ns=8e6, repeated_ns=5e6, phase="forward")]
    job = dataclasses.replace(diagnosis.kernel_bound(*work), frames=frames(host=10, model=90))
    assert advised(job).keys() == {"edit.compute_once", "edit.keep_result"}
    code = [CodeSite(what="calls copy.deepcopy", where="model.py:12 forward", samples=70)]
    known = dataclasses.replace(job, frames=frames(host=10, model=90, code=code))
    assert advised(known).keys() == {"edit.copy_less"}


def test_several_backwards_of_one_line_are_told_with_what_all_but_the_last_take() -> None:
    looks = [FrameCount(where="train.py:9 main", phase="backward", in_loader=False, samples=80)]
    code = [CodeSite(what="repeats backward", where="train.py:9 main", samples=80)]
    job = dataclasses.replace(diagnosis.tiny_mlp(), frames=FrameSamples(samples=100, places=looks, code=code))
    assert job.phases is not None
    for count, gain in ((4, pytest.approx(1 / (1 - 0.8 * 0.75), rel=0.02)), (1, None)):
        several = dataclasses.replace(job, phases=dataclasses.replace(job.phases, backwards=count))
        assert advised(several).get("edit.one_backward") == gain


@pytest.mark.parametrize(("calls", "told"), [(48, True), (2, False), (None, False)])
def test_a_model_called_many_times_for_one_update_is_told_by_the_loop(calls: int | None, told: bool) -> None:
    code = [CodeSite(what="calls the model", where="train.py:63 generate", samples=70)]
    job = dataclasses.replace(diagnosis.tiny_mlp(), frames=frames(host=30, model=70, code=code))
    job = dataclasses.replace(job, anatomy=diagnosis.anatomy(calls_per_step=calls))
    assert ("edit.fewer_calls" in advised(job)) == told


@pytest.mark.parametrize(
    ("shapes", "sums", "told"),
    [
        ("768x1x64 1x512x64", "aten.sum.dim_IntList", True),
        ("768x1x64 1x512x64", "aten.exp.default", False),
        ("768x64 512x768x64", "aten.sum.dim_IntList", False),
        ("768x64 768x64", "odd", False),
        ("768x1x64 1x512x64", "backward", False),  # a weight's gradient
    ],
)
def test_a_large_tensor_of_small_ones_is_told_where_it_is_summed(shapes: str, sums: str, told: bool) -> None:
    phase, op = ("backward", "aten.sum.default") if sums == "backward" else ("forward", sums)
    work = [
        an_op("aten.sub.Tensor", 4e6, 1, phase=phase, shapes=shapes),
        an_op(op, 3e6, 1, phase=phase, shapes="768x512x64"),
        an_op("aten.mm.default", 1e6, 1, phase="forward", shapes="768x64 64x64"),
    ]
    job = measured(10 * MS, trace=traced(10 * MS, kernels=0.9, work=work), stacks=frames(host=5, model=95))
    found = advised(job).get("edit.no_outer_tensor")
    assert (found is not None) == told
    assert found is None or found == pytest.approx(1 / (1 - 0.9 * 0.9 * 7 / 8), rel=0.05)


@pytest.mark.parametrize(
    ("edit", "rows"),
    [
        ("edit.sparse_graph", ["mm forward 2000x2000 2000x16", "mm backward 2000x2000 2000x16"]),
        (
            None,
            ["mm forward 2000x2000 2000x16", "mm backward 2000x16 16x2000"],
        ),  # a layer's: the left is data
        ("edit.embedding", ["scatter_.value forward 8x4x900", "mm forward 32x900 900x64"]),
        (None, ["scatter_.value forward 8x4x900", "mm forward 32x90 90x64"]),
        ("edit.class_indices", [*TARGETS, "_log_softmax forward 32x900"]),
        (None, TARGETS),  # no softmax over classes: a mixture of experts
        ("edit.enlarge_last", ["upsample_nearest2d forward 4x96x8x8", *ENLARGED]),
        (None, ["mul.Tensor forward 4x96x32x32 4x96x1x1", *ENLARGED[:1]]),
        (None, ["convolution forward 4x96x32x32 96x96x3x3 96", *ENLARGED]),  # it may be another of this shape
        ("edit.multiply_first", ["index_select forward 100x64 400 @25600", "mm forward 400x64 64x64"]),
        (None, ["index_select forward 300x64 400 @25600", "mm forward 400x64 64x64"]),
        ("edit.select_first", [HEAD, "index.Tensor forward 8x50x900 8x50 @90000"]),  # by a mask, 100 rows
        ("edit.select_first", [HEAD, "index.Tensor forward 400x900 100 @90000"]),
        (None, [HEAD, "index.Tensor forward 400x900 400 @400"]),  # a number of each row, as a loss does
        (None, [HEAD, *["index.Tensor forward 400x900 100 @90000"] * 3]),
        (None, ["addmm forward 900 400x900 900x900", "index.Tensor forward 400x900 100 @90000"]),
    ],
)
def test_products_with_zeros_are_told_by_their_shapes(edit: str | None, rows: list[str]) -> None:
    """After @: how many numbers a call makes."""
    parts = [row.partition(" @")[0].split(" ", 2) for row in rows]
    work = [an_op(f"aten.{op}", 3e6, 1, phase=phase, shapes=shapes) for op, phase, shapes in parts]
    made = [int(row.partition(" @")[2] or 0) for row in rows]
    work = [msgspec.structs.replace(one, bytes=8.0 * n or None) for one, n in zip(work, made, strict=True)]
    job = measured(10 * MS, trace=traced(10 * MS, kernels=0.9, work=work), stacks=frames(host=5, model=95))
    told = ("sparse_graph", "embedding", "enlarge_last", "select_first", "multiply_first", "class_indices")
    found = {f"edit.{name}" for name in told} & set(advised(job))
    assert found == ({edit} if edit else set())


def test_a_step_of_one_sample_is_told_what_four_would_save() -> None:
    for batch, gain in ((1, pytest.approx(1 / (1 - 0.75 * 0.8), rel=0.05)), (32, None)):
        probe = diagnosis.probed(fixed=0.8, batch=batch, factors=(1, 2, 4))
        job = dataclasses.replace(diagnosis.tiny_mlp(), probe=probe)
        assert advised(job).get("edit.batch_samples") == gain


@pytest.mark.parametrize(("rows", "told"), [((1, 1), True), ((1, 12), False), ((), False)])
def test_a_step_whose_products_have_one_row_is_one_of_one_sample(rows: tuple[int, ...], told: bool) -> None:
    work = [an_op("addmm", 1e5, phase="forward", shapes=f"64 {each}x32 32x64") for each in rows]
    shares = {"data_wait": 0.0, "forward": 0.4, "backward": 0.5, "optimizer": 0.1, "other": 0.0}
    job = measured(2 * MS, shares, trace=traced(2 * MS, shares, kernels=0.2, work=work))
    assert ("edit.batch_samples" in advised(job)) == told


def test_a_model_that_runs_for_each_item_is_told_where_one_update_has_many_backwards() -> None:
    code = [CodeSite(what="accumulates", where="train.py:9 main", samples=12)]
    job = dataclasses.replace(diagnosis.tiny_mlp(), frames=frames(host=60, model=90, code=code))
    for count, told in ((32, True), (2, False)):
        assert job.phases is not None
        several = dataclasses.replace(job, phases=dataclasses.replace(job.phases, backwards=count))
        assert ("edit.fewer_calls" in advised(several)) == told


def test_the_line_that_makes_such_a_tensor_is_told_not_the_backward_that_takes_more() -> None:
    ops, shapes = ("div.Tensor", "sum.dim_IntList"), ("256x1x128 256x256x1", "256x256x128")
    ahead, back = (
        [
            an_op(f"aten.{op}", each, 1, phase=phase, shapes=shape)
            for op, shape in zip(ops, shapes, strict=True)
        ]
        for phase, each in (("forward", 0.5e6), ("backward", 4e6))
    )
    looks = {"backward": ("train.py:75 main", 81), "other": ("train.py:52 similarity", 12)}
    places = [
        FrameCount(where=at, phase=phase, in_loader=False, samples=n) for phase, (at, n) in looks.items()
    ]
    job = measured(10 * MS, trace=traced(10 * MS, kernels=0.9, work=[*ahead, *back]))
    job = dataclasses.replace(job, frames=FrameSamples(samples=100, places=places))
    (found,) = [one for one in ledger_edits(job) if one.remedy == "edit.no_outer_tensor"]
    assert "train.py:52 similarity" in found.why


@pytest.mark.parametrize(("optimizer", "told"), [("Shampoo", True), ("AdamW", False)])
def test_dear_work_of_an_own_optimizer_has_an_edit(optimizer: str, told: bool) -> None:
    place = FrameCount(where="train.py:42 inverse_root", phase="optimizer", in_loader=False, samples=70)
    shares = {"data_wait": 0.0, "forward": 0.1, "backward": 0.1, "optimizer": 0.7, "other": 0.1}
    trace = traced(8 * MS, shares, kernels=0.9)
    job = measured(8 * MS, shares, trace=trace, stacks=FrameSamples(samples=100, places=[place]))
    job = dataclasses.replace(job, anatomy=diagnosis.anatomy(optimizers=[optimizer]))
    assert ("edit.optimizer_work" in advised(job)) == told


def test_short_floats_are_told_where_the_cpu_has_no_instructions_for_them() -> None:
    slow = diagnosis.worked("aten.mm.default", 0.9, 10 * MS, rate=0.05)
    short = msgspec.structs.replace(slow, dtype="bfloat16")
    job = diagnosis.kernel_bound(short, step_ns=10 * MS, peaks=diagnosis.peaks_of_machine())
    assert "edit.float32_products" in advised(dataclasses.replace(job, bf16=False))
    assert "edit.float32_products" not in advised(dataclasses.replace(job, bf16=True))


def test_an_edit_of_measured_lines_comes_before_what_compiling_is_estimated_to_bring() -> None:
    work = [an_op("aten.add.Tensor", 600.0, 400, phase=phase) for phase in ("forward", "backward")]
    for share, first in ((30, "edit.foreach_update"), (9, "compile.default")):
        other = share / 150
        shares = {"data_wait": 0.0, "forward": 0.42 - other / 2, "backward": 0.43 - other / 2}
        shares |= {"optimizer": 0.15, "other": other}
        trace = traced(shares=shares, kernels=0.2, operations=780, work=work)
        code = [CodeSite(what="updates", where="train.py:77 log_metrics", samples=share)]
        stacks = frames(host=share, model=150 - share, code=code)
        job = measured(shares=shares, trace=trace, fixed=0.95, stacks=stacks)
        advice = judge(job).verdict.advice
        gains = {one.remedy: one.expected or 1.0 for one in advice}
        assert gains["compile.default"] > gains["edit.foreach_update"]
        assert next(name for name in gains if name in ("edit.foreach_update", "compile.default")) == first


def test_compiling_the_model_saves_nothing_of_a_loss() -> None:
    work = [an_op("aten.add.Tensor", 600.0, 400, phase=phase) for phase in ("forward", "backward")]
    trace = traced(kernels=0.2, operations=780, work=work)
    for outside, told in ((0, True), (140, False)):
        job = measured(trace=trace, fixed=0.95, stacks=frames(host=outside, model=150 - outside))
        assert ("compile.default" in {one.remedy for one in judge(job).verdict.advice}) is told


def test_a_line_that_is_little_of_its_function_is_not_the_cause() -> None:
    for samples, edits in ((30, 1), (9, 0)):
        code = [CodeSite(what="calls tensor", where="train.py:70 log_metrics", samples=samples)]
        stacks = frames(host=60, model=90, code=code)
        advice = judge(dataclasses.replace(diagnosis.tiny_mlp(), frames=stacks)).verdict.advice
        assert [one.remedy for one in advice].count("edit.stack_first") == edits


def between_phases(stacks: FrameSamples) -> Measurements:
    shares = {"data_wait": 0.02, "forward": 0.2, "backward": 0.2, "optimizer": 0.1, "other": 0.48}
    return measured(8 * MS, shares, trace=traced(8 * MS, shares, operations=100), stacks=stacks)


def test_python_between_the_phases_has_an_edit_where_nothing_better_is_known_of_it() -> None:
    job = between_phases(frames(host=60, model=90))
    in_the_loss = dataclasses.replace(diagnosis.tiny_mlp(), frames=job.frames)  # to the clock it is forward
    assert "edit.less_often" not in advised(in_the_loss)
    seldom = np.array([8, *[8] * 18, 400] * 3) * MS  # the clock saw none of the long steps
    assert "edit.less_often" in advised(dataclasses.replace(in_the_loss, step_ns=seldom))
    (found,) = [one for one in judge(job).verdict.advice if one.remedy == "edit.less_often"]
    assert found.place == "train.py:77 log_metrics"
    assert found.expected == pytest.approx(1 / (1 - 0.9 * 0.4), rel=0.01)
    known = [CodeSite(what="calls torch.save", where="train.py:77 log_metrics", samples=55)]
    stacks = frames(host=60, model=90, code=known)
    advice = judge(between_phases(stacks)).verdict.advice
    assert "edit.less_often" not in {one.remedy for one in advice}
    little = [CodeSite(what="calls torch.save", where="train.py:79 log_metrics", samples=2)]
    assert "edit.less_often" in advised(between_phases(frames(host=60, model=90, code=little)))


@pytest.mark.parametrize(("share", "told"), [(0.72, 1), (0.2, 0)])
def test_operators_between_phases_have_an_edit_where_they_are_most_of_it(share: float, told: int) -> None:
    rest = (1 - share) / 4
    shares = {"data_wait": rest, "forward": rest, "backward": rest, "optimizer": rest, "other": share}
    looks = int(200 * share)
    trace = traced(8 * MS, shares, kernels=0.9)
    job = measured(8 * MS, shares, trace=trace, stacks=frames(host=looks, model=200 - looks))
    found = [one for one in judge(job).verdict.advice if one.remedy == "edit.less_often"]
    assert [one.expected for one in found] == [pytest.approx(1 / (1 - 0.9 * share), rel=0.01)] * told


@pytest.mark.parametrize(
    ("stayed", "asleep", "edit"),
    [(40, 15, "edit.wait_less"), (40, 5, "edit.less_often"), (2, 2, "edit.less_often")],
)
def test_code_in_which_the_thread_sleeps_is_told_from_python(stayed: int, asleep: int, edit: str) -> None:
    stacks = frames(host=60, model=90)
    recv, model = (msgspec.structs.replace(one, stayed=stayed, asleep=asleep) for one in stacks.places)
    verdict = judge(between_phases(msgspec.structs.replace(stacks, places=[recv, model]))).verdict
    edits = [one.remedy for one in verdict.advice if one.remedy in ("edit.wait_less", "edit.less_often")]
    assert edits == [edit]
    assert verdict.where[0].place == "train.py:77 log_metrics"
    assert {one.does for one in verdict.where if one.phase == "forward"} == {"operators"}


def test_a_line_that_takes_little_has_no_edit() -> None:
    saves = FrameCount(where="train.py:9 save", phase="other", in_loader=False, samples=4)
    code = [CodeSite(what="calls torch.save", where="train.py:9 save", samples=4)]
    stacks = FrameSamples(samples=300, places=[*frames(model=296).places, saves], code=code)
    job = measured(20 * MS, stacks=stacks)
    assert not [one for one in judge(job).verdict.advice if one.remedy == "edit.save_less_often"]


def test_a_transform_of_a_length_that_is_fast_has_no_edit() -> None:
    code = [CodeSite(what="calls rfft", where="train.py:77 log_metrics", samples=40)]
    job = dataclasses.replace(diagnosis.tiny_mlp(), frames=frames(host=60, model=90, code=code))
    assert "edit.smooth_length" in {one.remedy for one in ledger_edits(job)}
    assert job.traced is not None
    for length, told in ((24576, False), (24001, True)):
        work = [an_op("aten._fft_r2c", 900.0, shapes=f"8x{length}")]
        traced_job = dataclasses.replace(job, traced=msgspec.structs.replace(job.traced, work=work))
        assert ("edit.smooth_length" in {one.remedy for one in ledger_edits(traced_job)}) is told


def test_items_have_no_edit_of_their_own_where_one_call_is_most_of_them() -> None:
    shares = {"data_wait": 0.6, "forward": 0.2, "backward": 0.1, "optimizer": 0.1}
    loads = FrameCount(
        where="data.py:9 __getitem__", phase="data_wait", in_loader=True, does="loads", samples=120
    )
    for samples, edits in ((100, {"edit.parse_once"}), (50, {"edit.parse_once", "edit.cheaper_items"})):
        code = [CodeSite(what="calls json", where="data.py:9 __getitem__", samples=samples)]
        stacks = FrameSamples(samples=200, places=[*frames(model=80).places, loads], code=code)
        found = {one.remedy for one in ledger_edits(measured(20 * MS, shares, stacks=stacks))}
        assert found & {"edit.parse_once", "edit.cheaper_items"} == edits
