"""Settings that cost time are told with their line, before what was predicted of anything else."""

import dataclasses

import msgspec
import pytest

from autobrrr.diagnosis.advice.job_settings import costly_settings
from autobrrr.diagnosis.advice.ledger_edits import ledger_edits
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.shares import step_shares
from autobrrr.diagnosis.verdict.judge import judge
from autobrrr.records import CodeSite, FrameCount, FrameSamples, SettingFact
from autobrrr.records.agent_records import OpTime
from support.judged import diagnosis
from support.judged.diagnosis import (
    an_op,
    big_matmul,
    frames,
    machine,
    measured,
    optimizer_bound,
    tiny_mlp,
)


def having(job: Measurements, name: str, value: float = 1.0, **more: object) -> Measurements:
    fact = msgspec.convert({"name": name, "value": value, **more}, SettingFact)
    return dataclasses.replace(job, settings=(fact,))


def test_a_switch_that_was_left_on_comes_first_and_names_its_line_on_a_busy_machine_too() -> None:
    for host in (None, machine(run_delay_share=0.7)):
        job = having(tiny_mlp(host), "anomaly", where="train.py:14 <module>")
        first = judge(job).verdict.advice[0]
        assert (first.remedy, first.reach, first.class_) == ("edit.anomaly_mode", "edit", "bitwise")
        assert "anomaly mode is on at train.py:14 <module>:" in first.why


@pytest.mark.parametrize(
    ("name", "value", "job", "gain"),
    [
        ("recompiles", 0.9, tiny_mlp, 10.0),
        ("recompiles", 0.04, tiny_mlp, None),
        ("float64", 1.0, big_matmul, 1 / (1 - 0.95 / 2)),
        ("denormals", 0.9, optimizer_bound, 1 / (1 - 0.8 * 4.5 / 5.5)),
        ("denormals", 0.1, optimizer_bound, None),
        ("unused_rows", 0.99, optimizer_bound, 1 / (1 - 0.8 * 0.99)),
        ("unused_rows", 0.3, optimizer_bound, None),
        ("padding", 0.65, big_matmul, 1 / (1 - 0.78 * 0.95 * 0.6)),
        ("padding", 0.2, big_matmul, None),
    ],
)
def test_a_setting_has_a_gain_of_the_step(name: str, value: float, job: object, gain: float | None) -> None:
    found = costly_settings(having(job(), name, value, detail="9 x 9"))  # type: ignore[operator]
    assert [one.expected for one in found] == ([] if gain is None else [pytest.approx(gain, rel=0.03)])


def test_rows_that_no_step_uses_cost_backward_too() -> None:
    job = diagnosis.dense_embedding()
    spent_ns = {"aten.embedding_dense_backward": 6e6, "aten.add": 4e6}
    by_op = [OpTime(op=op, count=1.0, kernel_ns=ns) for op, ns in spent_ns.items()]
    job = dataclasses.replace(job, traced=msgspec.structs.replace(job.traced, by_op=by_op))
    (found,) = costly_settings(having(job, "unused_rows", 0.9, detail="9 x 9"))
    assert found.expected == pytest.approx(1 / (1 - 0.9 * (0.5 + 0.6 * 0.8)), rel=0.05)


def test_all_lines_of_a_layer_share_what_its_checkpoint_computes_again() -> None:
    code = [CodeSite(what="recomputes", where=f"model.py:{line} forward", samples=15) for line in (5, 6, 7)]
    job = dataclasses.replace(diagnosis.big_matmul(), frames=frames(host=60, model=90, code=code))
    (found,) = [one for one in ledger_edits(job) if one.remedy == "edit.no_checkpoint"]
    assert found.expected == pytest.approx(1 / (1 - 0.9 * 0.3), rel=0.01)


def test_padding_costs_what_works_on_it() -> None:
    """Not a network of images whose batch has a few padded numbers beside it."""
    for sides, gain in (
        ("4x512", None),
        ("4x64", 1 / (1 - 0.78 * 0.95 * 0.6)),
        ("256x8", 1 / (1 - 0.78 * 0.95 * 0.6)),
    ):
        job = big_matmul()
        work = [an_op("addmm", 9e6, phase=phase, shapes=f"{sides} 8x8") for phase in ("forward", "backward")]
        assert job.traced is not None
        job = dataclasses.replace(job, traced=msgspec.structs.replace(job.traced, work=work))
        found = costly_settings(having(job, "fixed_padding", 0.65, detail="4 x 64"))
        assert [one.expected for one in found] == ([] if gain is None else [pytest.approx(gain, rel=0.03)])


def test_compiling_anew_for_half_of_the_time_limits_the_step() -> None:
    detail = "model.py:20 forward: size mismatch at index 1"
    verdict = judge(having(measured(steps=2), "recompiles", 0.8, detail=detail)).verdict
    assert (verdict.limit, verdict.limit_confidence) == ("recompilation", "high")
    assert verdict.limit_reason == f"torch.compile compiles anew for 80 % of the time: {detail}"
    assert verdict.advice[0].remedy == "edit.dynamic_shapes"
    assert judge(having(measured(), "recompiles", 0.4, detail=detail)).verdict.limit != "recompilation"


def test_a_switch_that_may_cost_nothing_stands_behind_what_has_a_figure() -> None:
    advice = judge(having(optimizer_bound(), "deterministic")).verdict.advice
    assert advice[0].expected is not None
    assert "edit.deterministic" in {one.remedy for one in advice}


def test_predictions_of_edits_and_remedies_stand_in_one_order() -> None:
    job = having(optimizer_bound(), "denormals", 0.9)
    advice = judge(job).verdict.advice
    gains = [one.expected or 1.0 for one in advice if one.class_ != "changes-training"]
    assert gains == sorted(gains, reverse=True)
    assert advice[0].remedy == "edit.flush_denormal"
    assert [one.expected for one in advice if one.remedy == "optimizer.fused"] == [None]
    changing = [one.class_ == "changes-training" for one in advice]
    assert changing == sorted(changing)


def test_a_job_that_its_quota_stops_is_told_so() -> None:
    job = measured(host=machine(throttled_share=0.4))
    (found,) = costly_settings(job)
    assert found.expected == pytest.approx(1 / 0.6, rel=0.01)
    assert costly_settings(measured(host=machine(throttled_share=0.01))) == []


@pytest.mark.parametrize(
    ("what", "edit", "removed"),
    [
        ("unused graphs", "edit.no_grad", 0.1),
        ("goes too far", "edit.detach_input", 0.5),
        ("drops gradients", "edit.freeze_meanwhile", 0.15),
    ],
)
def test_calls_for_nothing_have_their_part_of_the_looks(what: str, edit: str, removed: float) -> None:
    stacks = frames(host=60, model=90, code=[CodeSite(what=what, where="train.py:9 test", samples=75)])
    job = dataclasses.replace(diagnosis.tiny_mlp(), frames=stacks)
    (found,) = [one for one in judge(job).verdict.advice if one.remedy == edit]
    assert found.expected == pytest.approx(1 / (1 - removed * 0.5), rel=0.01)
    assert "train.py:9 test" in found.why
    assert "50 % of the time" in found.why


def test_networks_of_one_shape_are_stacked_where_dispatch_is_much_of_the_step() -> None:
    code = [CodeSite(what="twins", where="train.py:9 main", samples=12)]
    for kind, much in ((diagnosis.tiny_mlp(), True), (diagnosis.big_matmul(), False)):
        job = dataclasses.replace(kind, frames=frames(host=60, model=90, code=code))
        found = [one for one in judge(job).verdict.advice if one.remedy == "edit.stack_networks"]
        gains = [1 / (1 - 0.6 * (step_shares(job).overhead or 0.0))] * much
        assert [one.expected for one in found] == [pytest.approx(gain, rel=0.01) for gain in gains]


def test_a_kept_graph_comes_first_without_a_gain() -> None:
    stacks = frames(
        host=60, model=90, code=[CodeSite(what="kept graphs", where="train.py:9 main", samples=55)]
    )
    job = dataclasses.replace(diagnosis.tiny_mlp(), frames=stacks)
    first = judge(job).verdict.advice[0]
    assert (first.remedy, first.expected) == ("edit.detach", None)
    assert "train.py:9 main" in first.why


def test_cudnn_is_no_matter_where_nothing_convolves() -> None:
    assert costly_settings(having(tiny_mlp(), "cudnn_benchmark")) == []


def test_copies_of_a_hook_are_told_with_what_their_function_takes() -> None:
    looks = [
        FrameCount(where=where, phase="backward", in_loader=False, samples=samples)
        for where, samples in (("train.py:9 count", 40), ("train.py:30 main", 60))
    ]
    job = dataclasses.replace(diagnosis.tiny_mlp(), frames=FrameSamples(samples=100, places=looks))
    (found,) = costly_settings(having(job, "hooks", 0.9, detail="train.py:7 count", where="train.py:20 main"))
    assert found.expected == pytest.approx(1 / (1 - 0.9 * 0.4), rel=0.05)
    assert "copies of train.py:7 count" in found.why
