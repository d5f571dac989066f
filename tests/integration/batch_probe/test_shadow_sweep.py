"""A sweep replays a step at further sizes of its data: harmless to the bit, refused where it can't be."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from support.batch_probe import shadow
from support.batch_probe.shadow_loop import Outcome, train

pytestmark = pytest.mark.integration

STEPS = 64


def swept(make: shadow.Job, along: str) -> dict[str, object]:
    """The result; training must be bitwise that without a sweep."""
    never = train(make, STEPS, probe=False)
    outcome: Outcome = train(make, STEPS, probe=True, params={"sweep": along, "rounds": 2})
    assert outcome.fingerprint == never.fingerprint
    assert outcome.probed is not None, outcome.activities
    assert outcome.probed["sweep"] == along
    return outcome.probed


def sizes(probed: dict[str, object]) -> list[int]:
    assert probed["status"] == "ok", probed["why"]
    return [point["batch"] for point in probed["points"]]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("make", "along", "expected"),
    [
        (shadow.mlp, "batch", [2, 4, 8, 16, 32, 64, 128, 256, 512]),
        (shadow.lstm_time_first, "length", [1, 2, 5, 10, 20]),
        (shadow.cnn_with_batch_norm, "width", [5, 7, 10, 15, 20]),
    ],
    ids=["batch", "length, time first", "width"],
)
def test_the_step_is_replayed_along_what_was_asked_for(
    make: shadow.Job, along: str, expected: list[int]
) -> None:
    assert sizes(swept(make, along)) == expected


def test_lengths_beyond_the_model_s_positions_are_left_out_with_its_own_words() -> None:
    probed = swept(shadow.transformer_with_the_loss_outside, "length")
    assert sizes(probed) == [3, 6, 12]
    notes = probed["notes"]
    assert isinstance(notes, list)
    assert "2L left out: refused (RuntimeError: The size of tensor a (24) must match" in notes[0]


@pytest.mark.parametrize(
    ("make", "along", "why"),
    [
        (shadow.mlp, "length", "no input of the step has a length"),
        (shadow.lstm_time_first, "width", "no input of the step has a width"),
        (shadow.translator_with_as_many_samples_as_tokens, "length", "can't be told from another size"),
        (shadow.vision_transformer, "width", "can't be told from another size"),
    ],
)
def test_a_size_that_the_inputs_do_not_show_is_refused_with_the_reason(
    make: shadow.Job, along: str, why: str
) -> None:
    probed = swept(make, along)
    assert probed["status"] == "abstained"
    assert why in str(probed["why"])


def test_a_module_that_takes_one_width_only_is_left_alone() -> None:
    def make() -> shadow.Kind:
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 8 * 8, 3))
        return shadow.supervised(model, torch.randn(4, 6, 1, 10, 10), torch.randint(0, 3, (4, 6)))

    probed = swept(make, "width")
    assert probed["status"] == "abstained"
    assert "can't be replayed at a width of 5" in str(probed["why"])


def test_what_a_step_keeps_grows_by_what_a_sample_adds() -> None:
    """Linear 12-24, ReLU, Dropout, Linear 24-4, by hand: what their backward needs of one sample."""
    memory = swept(shadow.mlp, "batch")["memory"]
    assert isinstance(memory, dict)
    floats = 12 + 24 + 24 + 24 + 4  # input, ReLU's result, the dropped one twice or its mask, scores
    assert memory["per_sample_bytes"] == pytest.approx(4 * floats, rel=0.35)
    assert memory["saved_bytes"] == pytest.approx(8 * memory["per_sample_bytes"], rel=0.1)
    assert memory["peak_2x_bytes"] == pytest.approx(2 * memory["peak_bytes"], rel=0.1)
    assert memory["largest_batch"] > 10_000
