"""Advice fits the verdict and the job; predictions come from the measured step."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.diagnosis.advice.predicted_gains import COSTS, predicted_gain
from autobrrr.diagnosis.advice.remedy_fit import ROWS
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.verdict.judge import judge
from autobrrr.records import Advice
from support.judged import diagnosis
from support.judged.diagnosis import MS, anatomy, measured, probed

UPDATES = {"data_wait": 0.0, "forward": 0.2, "backward": 0.2, "optimizer": 0.6, "other": 0.0}


def advice(job: Measurements) -> dict[str, Advice]:
    return {one.remedy: one for one in judge(job).verdict.advice}


def test_a_job_without_a_dataloader_is_told_no_setting_of_one() -> None:
    by_hand = replace(diagnosis.tiny_mlp(), anatomy=anatomy(None))
    names = {one.remedy for one in judge(by_hand).verdict.advice}
    assert names
    assert not {name for name in names if name.startswith(("loader.", "batch."))}


def test_overhead_gets_its_cures_best_first() -> None:
    found = judge(diagnosis.tiny_mlp()).verdict.advice
    names = [one.remedy for one in found]
    assert names[:2] == ["optimizer.fused", "optimizer.foreach"]
    assert names[-1] == "batch.larger"  # it gains most, and changes the training
    gains = [one.expected or 1.0 for one in found[:-1]]
    assert gains == sorted(gains, reverse=True)
    assert "gc.freeze" not in names  # its collections were not timed


def test_no_cure_is_sold_while_the_step_is_still_being_measured() -> None:
    phases = UPDATES | {"data_wait": 0.4, "optimizer": 0.2}
    early = measured(2.0 * MS, phases, workers=0, fault_ns=1_000.0)
    assert predicted_gain(early)["loader.workers"] > 1.3
    assert judge(early).verdict.regime == "unknown"
    assert advice(early) == {}
    later = measured(2.0 * MS, phases, workers=0, kernels=0.4)
    assert judge(later).verdict.regime == "mixed"
    assert "loader.workers" in advice(later)


def test_workers_come_before_cheaper_items_where_they_bring_more() -> None:
    """An interval puts an estimate behind an edit of measured lines; what items save is an estimate, too."""
    starved = (diagnosis.starved_without_workers(), diagnosis.starved_with_workers())
    without, beside = ([*advice(job)] for job in starved)
    assert without[:2] == ["loader.workers", "edit.cheaper_items"]
    assert beside[:2] == ["edit.cheaper_items", "loader.workers"]


def test_reach_and_class_are_those_of_the_registry() -> None:
    for kind in (diagnosis.tiny_mlp, diagnosis.starved_without_workers, diagnosis.metrics_loop):
        for name, one in advice(kind()).items():
            if one.reach != "edit":
                assert (one.reach, one.class_) == (REGISTRY[name].reach, REGISTRY[name].cls)
    assert set(COSTS) <= set(REGISTRY)
    assert set(ROWS) <= set(REGISTRY)


def test_a_fused_optimizer_is_predicted_to_save_its_dispatch() -> None:
    # 100 tensors, 2 ms in the optimizer, nearly all dispatch: fused measures 0.27 ms, model 0.27 + kernels.
    step_ns = 2.0 * MS / 0.6
    job = measured(step_ns, UPDATES, kernels=0.1, operations=1_100, build=anatomy(tensors=100))
    left_ns = (10 + 1.25 * 100) * 2_000 + 0.3 * 0.1 * 2.0 * MS
    expected = step_ns / (step_ns - 2.0 * MS + left_ns)
    assert predicted_gain(job)["optimizer.fused"] == pytest.approx(expected, rel=0.02)
    assert predicted_gain(job)["optimizer.foreach"] < predicted_gain(job)["optimizer.fused"]


def test_an_optimizer_whose_kernels_take_at_least_a_part_is_predicted_as_if_all_were_kernels() -> None:
    job = measured(10 * MS, UPDATES, kernels=0.6, slowdown=0.9, build=anatomy(tensors=12))
    gains = predicted_gain(job)
    assert gains["optimizer.fused"] == pytest.approx(1 / (1 - 0.6 * 0.7), rel=0.05)
    assert "optimizer.foreach" not in gains or gains["optimizer.foreach"] == 1.0


def test_weight_traffic_of_adam_shrinks_in_one_kernel_and_lists_do_not_help() -> None:
    gains = predicted_gain(diagnosis.optimizer_bound())
    assert 1.8 < gains["optimizer.fused"] < 3
    assert gains["optimizer.foreach"] < 1.1
    assert advice(diagnosis.optimizer_bound())["optimizer.fused"].expected is not None


@pytest.mark.parametrize(
    ("operator", "missing"),
    [
        ("aten._fused_adamw_.default", {"optimizer.fused", "optimizer.foreach"}),
        ("aten._foreach_addcdiv_.Scalar", {"optimizer.foreach"}),
    ],
)
def test_what_is_on_already_is_not_advised(operator: str, missing: set[str]) -> None:
    job = measured(operations=900, ops=("aten.addmm.default", operator), fixed=0.95)
    assert not missing & set(advice(job))
    assert not missing & set(predicted_gain(job))
    assert judge(job).verdict.regime == "overhead"


def test_long_steps_that_sampling_has_missed_have_their_part_in_the_gain() -> None:
    job = diagnosis.optimizer_bound()
    gain = predicted_gain(job)["optimizer.fused"]
    mean_ns = float(job.step_ns.mean())
    longer = np.append(job.step_ns, int(mean_ns * len(job.step_ns)))  # twice the mean, nearly
    found = predicted_gain(replace(job, step_ns=longer))["optimizer.fused"]
    assert 1 - 1 / found == pytest.approx((1 - 1 / gain) / 2, rel=0.1)


def test_an_optimizer_that_no_remedy_understands_gets_none() -> None:
    job = measured(operations=900, fixed=0.95, build=anatomy(optimizers=("Muon",)))
    assert not {"optimizer.fused", "optimizer.foreach"} & (set(advice(job)) | set(predicted_gain(job)))


def test_time_of_an_optimizer_of_the_users_is_not_promised_by_another_ones_kernel() -> None:
    both = anatomy(optimizers=("Muon", "AdamW"))
    found = advice(measured(operations=900, fixed=0.95, build=both))
    assert found["optimizer.fused"].why == REGISTRY["optimizer.fused"].doc


def test_sgd_without_state_has_less_to_gain_than_with_momentum() -> None:
    def gain(state_bytes: int) -> float:
        build = anatomy(optimizers=("SGD",), tensors=40, state_bytes=state_bytes)
        job = measured(shares=UPDATES, kernels=0.6, build=build)
        return predicted_gain(job)["optimizer.fused"]

    assert gain(0) < gain(1_000)


def test_one_thread_is_advised_for_short_kernels_on_several_threads() -> None:
    def job(threads: int, kernels: float, step_ns: float = 2.6 * MS) -> Measurements:
        return measured(
            step_ns, kernels=kernels, operations=900, fixed=0.95, job=diagnosis.facts(threads=threads)
        )

    found = advice(job(8, 0.1))["threads.intra_op"]
    assert found.expected is None
    assert "8 threads" in found.why
    assert "threads.intra_op" not in advice(job(1, 0.1))
    assert "threads.intra_op" not in advice(job(8, 0.45, step_ns=200.0 * MS))


def test_a_larger_batch_is_predicted_by_the_cautious_end_of_the_interval() -> None:
    judgement = judge(diagnosis.tiny_mlp())
    interval = judgement.batch_probe.ratio_2x_interval
    expected = predicted_gain(diagnosis.tiny_mlp())["batch.larger"]
    assert expected == pytest.approx(2 / interval[1])
    assert "batch.larger" not in predicted_gain(measured(probe=probed(noise=0.4)))


@pytest.mark.parametrize(("cores", "gain"), [(8, 1 / 0.3), (3, 2.4), (2, 1.6)])
def test_workers_take_over_loading_as_far_as_cores_reach(cores: int, gain: float) -> None:
    stacks = diagnosis.frames(loader=105, model=45)
    job = measured(10 * MS, diagnosis.STARVED, stacks=stacks, workers=0, cores=cores)
    assert predicted_gain(job)["loader.workers"] == pytest.approx(gain, rel=0.01)
    assert advice(job)["loader.workers"].reach == "next_epoch"


@pytest.mark.parametrize(
    ("workers", "host", "sleeps"),
    [
        (0, {"cpu_share": 0.3}, True),
        (0, {"cpu_share": 0.4}, False),
        (0, {"cpu_share": None}, False),
        (0, {"cpu_share": 0.3, "run_delay_share": 0.4}, False),  # it waits for a CPU
        (3, {"children_cpu_share": 0.9}, True),
        (3, {"children_cpu_share": 2.7}, False),
    ],
)
def test_where_loading_sleeps_more_workers_than_cpus_are_advised_and_no_gain_is_predicted(
    workers: int, host: dict[str, float | None], sleeps: bool
) -> None:
    stacks = diagnosis.frames(loader=105, model=45, queue_empty_share=0.9 if workers else None)
    job = measured(
        10 * MS, diagnosis.STARVED, stacks=stacks, workers=workers, cores=4, host=diagnosis.machine(**host)
    )
    told = advice(job).get("loader.workers")
    assert (told is not None and "workers=8" in told.why) is sleeps
    assert (told is not None and told.options == {"workers": 8}) is sleeps
    assert ("loader.workers" not in predicted_gain(job)) is sleeps
    assert told is None or (told.expected is None) is sleeps


def test_more_workers_are_not_advised_without_cores_for_them() -> None:
    stacks = diagnosis.frames(loader=105, model=45, queue_empty_share=0.9)
    job = measured(10 * MS, diagnosis.STARVED, stacks=stacks, workers=4, cores=4)
    assert judge(job).verdict.regime == "input"
    assert predicted_gain(job)["loader.workers"] == 1.0
    assert "loader.workers" not in advice(job)


def test_a_cpu_job_is_advised_nothing_of_cuda_or_of_ranks() -> None:
    kinds = (diagnosis.tiny_mlp, diagnosis.pointwise_chain, diagnosis.products_at_peak)
    names = {name for kind in kinds for name in advice(kind())}
    assert not {name for name in names if name.startswith(("cuda.", "ddp.", "recompute."))}
    assert "precision.tf32" not in names
    assert "precision.autocast_bf16" not in names
    with_bf16 = diagnosis.replaced(diagnosis.products_at_peak(), bf16=True)
    assert "precision.autocast_bf16" in advice(with_bf16)


def test_page_faults_are_cured_by_malloc_and_the_gain_is_their_share() -> None:
    faulting = diagnosis.replaced(diagnosis.pointwise_chain(), minor_faults=2_500.0, fault_ns=2_000.0)
    found = advice(faulting)["host.malloc"]
    assert found.expected == pytest.approx(1 / 0.75, rel=0.01)
    assert found.reach == "relaunch"
    assert "2500 page faults a step" in found.why
    calm = diagnosis.replaced(diagnosis.pointwise_chain(), minor_faults=10.0, fault_ns=2_000.0)
    assert "host.malloc" not in advice(calm)


def test_garbage_collection_is_cured_where_it_takes_a_part_of_the_step() -> None:
    def job(garbage_ns: float) -> Measurements:
        return diagnosis.replaced(diagnosis.tiny_mlp(), garbage_ns=garbage_ns)

    found = advice(job(0.52 * MS))["gc.freeze"]
    assert found.expected == pytest.approx(1 / 0.8, rel=0.01)
    assert "20 % of the step" in found.why
    assert advice(job(2.4 * MS))["gc.freeze"].expected == pytest.approx(1 / (1 - 2.4 / 2.6), rel=0.01)
    assert not {"gc.freeze", "gc.threshold"} & set(advice(job(0.12 * MS)))


def test_convolutions_and_attention_are_advised_only_where_they_run() -> None:
    assert not {"layout.channels_last", "attention.sdpa"} & set(advice(diagnosis.pointwise_chain()))
    step_ns = 20.0 * MS
    convolving = diagnosis.worked("aten.convolution.default", 0.8, step_ns, rate=0.7, bandwidth=0.1)
    of_images = msgspec.structs.replace(convolving, shapes="32x3x28x28 16x3x5x5")
    of_sequences = msgspec.structs.replace(convolving, shapes="32x64x64 96x64x5")
    assert "layout.channels_last" in advice(diagnosis.kernel_bound(of_images, of_sequences))
    assert "layout.channels_last" not in advice(diagnosis.kernel_bound(of_sequences))


def test_an_undecided_verdict_advises_only_what_the_step_shows() -> None:
    assert set(advice(diagnosis.big_matmul())) == {"optimizer.fused"}
    assert all(one.expected for one in judge(diagnosis.blend()).verdict.advice)
    assert judge(Measurements(pid=1)).verdict.advice == []
    assert predicted_gain(Measurements(pid=1)) == {}


def test_no_gain_by_workers_is_predicted_on_one_cpu() -> None:
    alone = diagnosis.replaced(diagnosis.starved_without_workers(), cores=1)
    assert "loader.workers" not in predicted_gain(alone)
    told = advice(alone)["loader.workers"]
    assert told.expected is None
    assert "on one CPU" in told.why
