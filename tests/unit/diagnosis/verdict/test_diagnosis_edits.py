"""Edits are advised where the job shows the need, with their line, and are never tried."""

import dataclasses

import msgspec
import pytest

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.diagnosis.advice.gradient_accumulation import new_flags
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.verdict.judge import judge
from autobrrr.records import Advice, CodeSite, FrameSamples, OpWork, WindowOp
from autobrrr.records.agent_records import ProfilerWindow
from support.judged.diagnosis import MS, an_op, anatomy, facts, frames, measured, traced


def edits(job: Measurements) -> dict[str, Advice]:
    return {one.remedy: one for one in judge(job).verdict.advice if one.reach == "edit"}


def stacks(what: str, samples: int, of: int = 100, where: str = "train.py:31 main") -> FrameSamples:
    return FrameSamples(samples=of, places=[], code=[CodeSite(what=what, where=where, samples=samples)])


def with_backwards(job: Measurements, count: int) -> Measurements:
    return dataclasses.replace(job, phases=dataclasses.replace(job.phases, backwards=count))


def test_an_edit_is_none_of_the_remedies_that_can_be_tried() -> None:
    code = [CodeSite(what="updates", where="train.py:77 log_metrics", samples=30)]
    job = measured(stacks=frames(host=30, model=70, code=code))
    assert set(edits(job)) == {"edit.foreach_update"}
    assert not set(edits(job)) & set(REGISTRY)


def test_reading_back_in_every_step_is_advised_on_a_gpu_alone() -> None:
    found = edits(measured(stacks=stacks("reads back", 30), job=facts(cuda=True)))
    assert "train.py:31 main" in found["edit.item_every_n"].why
    assert "30 %" in found["edit.item_every_n"].why
    assert found["edit.item_every_n"].class_ == "bitwise"
    assert not edits(measured(stacks=stacks("reads back", 30)))
    assert not edits(measured(stacks=stacks("reads back", 1), job=facts(cuda=True)))


def test_a_profiler_window_counts_what_samples_miss() -> None:
    job = measured(stacks=stacks("reads back", 0), job=facts(cuda=True))
    reads = WindowOp(op="aten::_local_scalar_dense", count=2.0, self_ns=1e4)
    found = edits(dataclasses.replace(job, profile=ProfilerWindow(status="ok", by_op=[reads])))
    assert "2 times a step" in found["edit.item_every_n"].why


def test_a_copy_that_waits_is_advised_where_copies_take_time() -> None:
    job = measured(stacks=stacks("copies", 10), job=facts(cuda=True))
    assert "non_blocking=True" in edits(job)["edit.non_blocking_copy"].why
    assert not edits(measured(stacks=stacks("copies", 2), job=facts(cuda=True)))


@pytest.mark.parametrize(
    ("backwards", "ranks", "what", "advised"),
    [(4, 2, "reads back", True), (4, 2, "synchronises by hand", False), (1, 2, "", False), (4, 1, "", False)],
)
def test_every_backward_but_the_last_may_leave_out_the_exchange(
    backwards: int, ranks: int, what: str, advised: bool
) -> None:
    build = anatomy(roots=["DistributedDataParallel"])
    job = measured(stacks=stacks(what, 9), build=build, job=facts(world_size=ranks))
    assert ("edit.no_sync" in edits(with_backwards(job, backwards))) is advised


def scores_work(kernel_ns: float) -> list[OpWork]:
    return [
        an_op("aten.bmm.default", kernel_ns, 3, shapes="16x192x16 16x16x192"),
        an_op("aten._softmax.default", kernel_ns, 3, shapes="4x4x192x192"),
        an_op("aten.bmm.default", kernel_ns, 3, shapes="16x192x192 16x192x16"),
        an_op("aten.addmm.default", kernel_ns, 3, shapes="64 768x64 64x64"),
    ]


@pytest.mark.parametrize(
    ("kernel_ns", "operator", "advised"),
    [
        (0.2 * MS, "aten.mul.Tensor", True),
        (0.01 * MS, "aten.mul.Tensor", False),
        (0.2 * MS, "aten._scaled_dot_product_flash_attention_for_cpu.default", False),
        (0.2 * MS, "aten._safe_softmax.default", False),
    ],
)
def test_attention_by_hand_is_priced_by_its_scores(kernel_ns: float, operator: str, advised: bool) -> None:
    trace = traced(operations=900, ops=("aten.addmm.default", operator), work=scores_work(kernel_ns))
    build = anatomy(attention=["model.py:13 forward"])
    found = edits(measured(trace=trace, fixed=0.95, build=build))
    assert ("edit.fused_attention" in found) is advised
    if advised:
        why, gain = found["edit.fused_attention"].why, found["edit.fused_attention"].expected
        assert gain == pytest.approx(1 / (1 - 0.28 * 0.23), rel=0.01)
        assert "model.py:13 forward" in why
        assert "4x4x192x192" in why
        assert "23 %" in why  # three calls of 0.2 ms in a step of 2.6 ms


def test_padding_names_the_dimension_and_the_next_multiples() -> None:
    build = anatomy(uneven=["Linear.weight 50257x768"])
    why = edits(measured(build=build, job=facts(cuda=True)))["edit.padding"].why
    assert "50257" in why
    assert "50304 (or 50264)" in why
    assert not edits(measured(build=build))


def test_accumulation_is_advised_with_the_new_values_of_the_flags() -> None:
    job = measured(job=facts(argv=["train.py", "--batch-size", "8", "--grad-accum=4"]))
    found = edits(with_backwards(job, 4))["batch.accumulation"]
    assert "start it with --batch-size 16 --grad-accum 2" in found.why
    assert found.class_ == "rounding"
    assert not edits(with_backwards(job, 1))


def test_without_flags_a_loop_that_accumulates_is_named_and_two_losses_are_not() -> None:
    accumulating = with_backwards(measured(stacks=stacks("accumulates", 50)), 4)
    assert "not possible on the running job" in edits(accumulating)["batch.accumulation"].why
    assert not edits(with_backwards(measured(stacks=stacks("reads back", 50)), 4))
    assert accumulating.anatomy is not None
    lbfgs = msgspec.structs.replace(accumulating.anatomy, optimizers=["LBFGS"])
    assert "batch.accumulation" not in edits(dataclasses.replace(accumulating, anatomy=lbfgs))


def test_accumulation_is_not_advised_where_twice_the_samples_take_twice_the_time() -> None:
    job = measured(stacks=stacks("accumulates", 50), trace=traced(), fixed=0.0)
    assert "batch.accumulation" not in edits(with_backwards(job, 4))
    cheap = measured(stacks=stacks("accumulates", 50), trace=traced(), fixed=0.6)
    assert "times as long" in edits(with_backwards(cheap, 4))["batch.accumulation"].why


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--bs", "4", "--gradient_accumulation_steps", "8"], "--bs 8 --gradient_accumulation_steps 4"),
        (
            ["--per_device_train_batch_size=4", "--gradient-accumulation-steps=8"],
            "--per_device_train_batch_size 8 --gradient-accumulation-steps 4",
        ),
        (["--batch-size", "4", "--eval-batch-size", "4", "--accum", "8"], "--batch-size 8 --accum 4"),
        (["--batch-size", "4", "--bs", "4", "--accum", "8"], None),
        (["--batch-size", "4", "--accum", "2"], None),
        (["--accuracy", "8", "--batch-size", "4"], None),
    ],
)
def test_flags_are_understood_or_left_alone(argv: list[str], expected: str | None) -> None:
    assert new_flags(argv, 8) == expected


def test_nothing_is_advised_from_outside() -> None:
    assert not edits(dataclasses.replace(measured(stacks=stacks("updates", 30)), outside=True))
