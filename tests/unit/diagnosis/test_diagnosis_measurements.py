"""Sampled steps as figures: means, errors, and what is not measured."""

import numpy as np

from autobrrr.diagnosis.measurements import phase_figures


def test_phases_have_means_errors_and_a_rest() -> None:
    durations = np.array([100, 200, 300], np.int64)
    columns = {
        "data_wait_ns": np.array([10, 20, 30], np.int64),
        "forward_ns": np.array([50, 100, 150], np.int64),
        "samples": np.array([8, 8, 16], np.int64),
        "minor_faults": np.array([0, 3, 0], np.int64),
    }
    found = phase_figures(durations, columns)
    assert (found.steps, found.step_ns, found.batch, found.minor_faults) == (3, 200, 8, 1.0)
    assert (found.mean.data_wait, found.mean.forward, found.mean.other) == (20, 100, 80)
    assert found.error.data_wait == int(10 / 3**0.5)
    assert found.mean.backward is None


def test_a_field_that_was_not_measured_is_none_and_not_minus_one() -> None:
    columns = {
        "backward_ns": np.array([-1, -1], np.int64),
        "forward_ns": np.array([-1, 50], np.int64),
        "samples": np.array([-1, -1], np.int64),
    }
    found = phase_figures(np.array([100, 100], np.int64), columns)
    assert (found.mean.backward, found.mean.forward, found.mean.other) == (None, None, None)
    assert (found.batch, found.minor_faults) == (None, None)


def test_phases_longer_than_the_step_leave_no_negative_rest() -> None:
    found = phase_figures(np.array([100], np.int64), {"forward_ns": np.array([120], np.int64)})
    assert found.mean.other == 0
    assert found.error.forward is None


def test_a_few_steps_in_which_a_phase_was_not_measured_are_left_out() -> None:
    forward = np.full(40, 30, np.int64)
    forward[[0, 20]] = -1  # the first of each new model
    found = phase_figures(np.full(40, 100, np.int64), {"forward_ns": forward, "backward_ns": forward // 2})
    assert (found.steps, found.mean.forward, found.mean.other) == (38, 30, 55)
    forward[:20] = -1
    found = phase_figures(
        np.full(40, 100, np.int64), {"forward_ns": forward, "optimizer_ns": np.full(40, 10)}
    )
    assert (found.steps, found.mean.forward, found.mean.optimizer) == (40, None, 10)
