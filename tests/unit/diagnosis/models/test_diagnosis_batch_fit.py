"""The batch probe's fit, its guards, and the prediction for twice the batch."""

import msgspec
import pytest

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.models.batch_fit import BatchFit, fit_batch
from autobrrr.records import BatchProbe, ShadowProbe
from support.judged.diagnosis import MS, probed

replace = msgspec.structs.replace


def fitted(probe: ShadowProbe) -> BatchFit:
    found = fit_batch(probe)
    assert isinstance(found, BatchFit), found
    return found


def refused(probe: ShadowProbe | None) -> str:
    found = fit_batch(probe)
    assert isinstance(found, BatchProbe)
    assert found.status == "abstained"
    assert found.ratio_2x is None
    assert found.fixed_ns is None
    return found.why or ""


@pytest.mark.parametrize("fixed", [0.0, 0.3, 0.5, 0.95])
def test_the_fixed_part_of_a_linear_job_is_found(fixed: float) -> None:
    found = fitted(probed(fixed=fixed, noise=0.0))
    assert found.share == pytest.approx(fixed, abs=0.01)
    assert found.probe.fixed_ns == pytest.approx(fixed * 2.6 * MS, abs=0.01 * 2.6 * MS)
    assert found.probe.per_sample_ns == pytest.approx((1 - fixed) * 2.6 * MS / 32, rel=0.05, abs=10)


def test_the_points_are_whole_steps_in_order_of_the_batch() -> None:
    found = fitted(probed(fixed=0.5, noise=0.0))
    assert [point.batch for point in found.probe.points] == [8, 16, 32, 64]
    assert found.probe.points[2].step_ns == pytest.approx(2.6 * MS, rel=0.001)
    assert found.probe.points[3].step_ns == pytest.approx(1.5 * 2.6 * MS, rel=0.001)


def test_small_batches_count_by_their_relative_error() -> None:
    # A bend at the largest batch, as caches give it: the fixed part is that of the small ones.
    found = fitted(probed(curve=lambda factor: 0.1 + 0.9 * factor + 0.2 * (factor == 2), noise=0.0))
    assert found.share == pytest.approx(0.075, abs=0.02)


def test_noise_widens_the_interval() -> None:
    quiet, noisy = fitted(probed(noise=0.0)).probe, fitted(probed(noise=0.05)).probe
    assert noisy.ratio_2x_interval[1] - noisy.ratio_2x_interval[0] > (
        quiet.ratio_2x_interval[1] - quiet.ratio_2x_interval[0]
    )


def test_a_single_sample_off_the_line_of_the_others_is_left_out() -> None:
    # Averaged weights, batch 2: 2.35 ms for one sample, 3.98 for two, 3.98 for four.
    times = {0.5: 2.35 / 3.98, 1: 1.0, 2: 1.0}
    found = fitted(probed(3.98 * MS, batch=2, factors=(0.5, 1, 2), curve=times.__getitem__, noise=0.0))
    assert found.share == pytest.approx(1.0, abs=0.02)
    assert "in a straight line" in refused(
        probed(3.98 * MS, batch=4, factors=(0.5, 1, 2), curve=times.__getitem__, noise=0.0)
    )


def test_a_bent_line_is_refused() -> None:
    why = refused(probed(curve=lambda factor: 0.1 + 0.9 * factor**2))
    assert "in a straight line" in why


def test_noisy_replays_are_refused() -> None:
    assert "differ by 75 %" in refused(probed(noise=0.3))


def disturbed(probe: ShadowProbe, at: int, factors: tuple[float, ...]) -> ShadowProbe:
    """With replays of one size lengthened by other processes."""
    points = [
        replace(point, shadow_ns=[int(ns * by) for ns, by in zip(point.shadow_ns, factors, strict=True)])
        if point.batch == at
        else point
        for point in probe.points
    ]
    return replace(probe, points=points)


@pytest.mark.parametrize("at", [8, 16, 32, 64])
def test_slow_replays_do_not_count_where_the_fastest_agree(at: int) -> None:
    # Quartiles 2.0, 2.9 and 4.2 ms, as beside another process on the same core.
    found = fitted(disturbed(probed(), at, (1.0, 1.0, 1.45, 2.1, 2.8)))
    assert found.share == pytest.approx(0.95, abs=0.03)


@pytest.mark.parametrize("at", [8, 16, 64])
def test_a_size_whose_fastest_replays_disagree_is_left_out(at: int) -> None:
    found = fitted(disturbed(probed(), at, (1.0, 1.6, 2.0, 2.4, 2.8)))
    assert found.share == pytest.approx(0.95, abs=0.03)
    assert [point.batch for point in found.probe.points] == [size for size in (8, 16, 32, 64) if size != at]
    assert (found.probe.ratio_2x is None) == (at == 64)


def test_without_agreement_at_the_jobs_own_batch_there_is_no_fit() -> None:
    assert "differ by 60 %" in refused(disturbed(probed(noise=0.0), 32, (1.0, 1.6, 2.0, 2.4, 2.8)))


def test_two_sizes_other_than_b_and_2b_are_too_few_where_the_others_disagree() -> None:
    two = disturbed(probed(factors=(0.5, 1, 2)), 64, (1.0, 1.6, 2.0, 2.4, 2.8))
    assert "differ by" in refused(two)


def test_two_sizes_are_too_few_for_a_line() -> None:
    assert "2 of 3 batch sizes" in refused(probed(factors=(0.5, 1)))


@pytest.mark.parametrize("fixed", [0.0, 0.14, 0.61, 0.95])
def test_b_and_2b_alone_decide_what_is_far_from_every_limit(fixed: float) -> None:
    found = fitted(probed(factors=(1, 2), fixed=fixed))
    assert found.share == pytest.approx(fixed, abs=0.01)
    assert found.error == thresholds.TWO_SIZES_ERROR
    assert found.probe.ratio_2x == pytest.approx(2 - fixed, abs=0.01)


@pytest.mark.parametrize("fixed", [0.16, 0.25, 0.5, 0.59])
def test_near_a_limit_b_and_2b_alone_tell_their_ratio_but_no_fixed_part(fixed: float) -> None:
    found = fit_batch(probed(factors=(1, 2), fixed=fixed))
    assert isinstance(found, BatchProbe)
    assert found.ratio_2x == pytest.approx(2 - fixed, abs=0.01)
    assert found.fixed_ns is None
    assert "can't decide it" in (found.why or "")


def test_of_a_long_step_two_replays_of_each_size_are_enough() -> None:
    def twice(probe: ShadowProbe) -> ShadowProbe:
        kept = [replace(point, shadow_ns=point.shadow_ns[:2]) for point in probe.points]
        return replace(probe, points=kept)

    assert not fitted(twice(probed())).enough
    assert fitted(twice(probed(step_ns=200 * MS))).enough


def test_without_the_jobs_own_batch_there_is_no_fit() -> None:
    assert "own batch size was not replayed" in refused(probed(factors=(0.25, 0.5, 2)))
    assert "own batch size was not replayed" in refused(replace(probed(), batch=None))


def test_without_twice_the_batch_there_is_a_fit_and_no_prediction() -> None:
    found = fitted(probed(factors=(0.25, 0.5, 1)))
    assert found.probe.ratio_2x is None
    assert found.probe.ratio_2x_interval is None
    assert found.probe.fixed_ns


def test_a_probe_that_abstained_keeps_its_reason() -> None:
    assert refused(ShadowProbe(status="abstained", why="no batch dimension")) == "no batch dimension"
    assert "no replay yet" in refused(None)
