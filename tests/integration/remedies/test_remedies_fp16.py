"""float16 with a loss scale of ours: the script sees gradients of their usual size, and no overflow.

On a CPU, by the function that the remedy for a GPU calls; the remedy itself refuses a CPU.
"""

from __future__ import annotations

import types
import warnings

import pytest
import torch
from torch import nn

from autobrrr.injected.live_torch.torch_types import Abstain
from autobrrr.injected.remedies.model.precision_fp16 import (
    FIRST_SCALE,
    GROWS_AFTER,
    LossScale,
    scaled_autocast,
)
from autobrrr.injected.remedies.model_calls.call_results import map_tensors, refuse_unseen
from autobrrr.injected.remedies.registry import Refused, WatchedUndo
from support.injected.remedies import Training, loop_of, picture, training

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("untimed")]


def switched_on(loop: Training) -> WatchedUndo:
    undo = scaled_autocast(loop.job, "cpu")
    assert isinstance(undo, WatchedUndo)
    return undo


def gradients(loop: Training, x: torch.Tensor, backwards: int = 1) -> list[torch.Tensor]:
    loop.optimizer.zero_grad()
    for _ in range(backwards):
        loop.model(x).square().mean().backward()
    return [each.grad.clone() for each in loop.model.parameters() if each.grad is not None]


def batch() -> torch.Tensor:
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(9))


def distance(mine: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    assert len(mine) == len(theirs)
    apart = sum(float((a - b).square().sum()) for a, b in zip(mine, theirs, strict=True))
    return (apart / sum(float(b.square().sum()) for b in theirs)) ** 0.5


@pytest.mark.parametrize("model", ["blocks", "attention", "images"])
@pytest.mark.parametrize("backwards", [1, 3])
def test_gradients_are_those_of_full_precision_to_a_few_thousandths(model: str, backwards: int) -> None:
    plain, cured = training(model=model), training(model=model)
    for loop in (plain, cured):
        loop.model.train()
        for part in loop.model.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
    undo = switched_on(cured)
    expected = gradients(plain, batch(), backwards)
    found = gradients(cured, batch(), backwards)
    assert undo.trouble() is None
    assert 0 < distance(found, expected) < 0.02
    undo()


def test_it_computes_in_half_and_hands_out_full_precision() -> None:
    class Looks(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = super().forward(x)
            return 2 * out if out.dtype == torch.float16 else out

    loop = loop_of(lambda: nn.Sequential(Looks(16, 4)))
    plain = loop.model(batch())
    undo = switched_on(loop)
    out = loop.model(batch())
    undo()
    assert undo.trouble() is None
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, 2 * plain, rtol=1e-2, atol=1e-2)


def test_it_is_undone_without_a_trace_and_training_goes_on() -> None:
    loop = training()
    before = picture(loop)["modules"]
    hooks = dict(loop.optimizer._optimizer_step_pre_hooks)
    undo = switched_on(loop)
    loop.train(3)
    undo()
    assert undo.trouble() is None
    assert picture(loop)["modules"] == before
    assert dict(loop.optimizer._optimizer_step_pre_hooks) == hooks
    assert all(each._backward_hooks is None for each in loop.model.parameters())
    loop.train(2)


def test_a_step_whose_gradients_overflow_is_left_out_and_the_scale_halved() -> None:
    loop = loop_of(lambda: nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 4)), "SGD momentum")
    scale = LossScale(torch, "cpu")
    weights = [each.detach().clone() for each in loop.model.parameters()]
    for parameter in loop.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    scale.unscaled([torch.tensor([1.0, float("inf")])], scale.scale)
    loop.optimizer.register_step_pre_hook(scale.before_step)
    loop.optimizer.step()
    assert all(map(torch.equal, weights, loop.model.parameters()))
    assert scale.scale == FIRST_SCALE / 2
    assert scale.skipped == 1
    for parameter in loop.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    loop.optimizer.step()
    assert not any(map(torch.equal, weights, loop.model.parameters()))


def test_training_survives_an_overflow_of_its_own() -> None:
    loop = loop_of(lambda: nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)))
    undo = switched_on(loop)
    for size in (1.0, 3e5, 1.0):  # a loss so steep that its scaled gradient is none in float16
        loop.optimizer.zero_grad()
        (size * loop.model(batch()).square().sum()).backward()
        loop.optimizer.step()
    assert all(bool(each.isfinite().all()) for each in loop.model.parameters())
    assert all(bool(torch.isfinite(state["exp_avg"]).all()) for state in loop.optimizer.state.values())
    assert undo.trouble() is None
    undo()


def test_the_scale_grows_after_many_good_steps_and_gives_up_below_one() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    scale = LossScale(torch, "cpu")
    for _ in range(GROWS_AFTER):
        scale.unscaled([torch.ones(2)], scale.scale)
        scale.before_step(optimizer, (), {})  # type: ignore[arg-type]
    assert scale.scale == 2 * FIRST_SCALE
    while scale.why is None:
        scale.unscaled([torch.full((2,), float("nan"))], scale.scale)
        scale.before_step(optimizer, (), {})  # type: ignore[arg-type]
    assert scale.scale < 1


class Reaches(nn.Module):
    """A weight is reached past the module's own parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 4)
        self.held = [self.inner.weight]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.held[0]) + self.inner.bias


def test_a_weight_that_is_reached_another_way_is_noticed_before_training_meets_it() -> None:
    plain, cured = loop_of(Reaches), loop_of(Reaches)
    undo = switched_on(cured)
    assert distance(gradients(cured, batch()), gradients(plain, batch())) == 0  # it ran eagerly
    assert "does not fit" in str(undo.trouble())
    undo()


def test_a_loss_on_the_weights_themselves_is_not_scaled() -> None:
    plain, cured = training(model="blocks"), training(model="blocks")
    for loop in (plain, cured):
        loop.model.requires_grad_(True)
        for part in loop.model.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
    undo = switched_on(cured)
    found = []
    for loop in (plain, cured):
        loop.optimizer.zero_grad()
        penalty = sum(each.square().sum() for each in loop.model.parameters())
        (loop.model(batch()).square().mean() + penalty).backward()
        found.append([each.grad.clone() for each in loop.model.parameters() if each.grad is not None])
    assert distance(found[1], found[0]) < 0.01
    undo()


def test_a_gradient_asked_for_the_input_is_of_its_usual_size() -> None:
    plain, cured = (loop_of(lambda: nn.Sequential(nn.Linear(16, 8), nn.GELU())) for _ in range(2))
    undo = switched_on(cured)
    asked = []
    for loop in (plain, cured):
        x = batch().requires_grad_()
        asked.append(torch.autograd.grad(loop.model(x).square().mean(), x)[0])
    assert distance([asked[1]], [asked[0]]) < 0.02
    undo()


def test_what_it_does_not_understand_is_refused_with_a_reason() -> None:
    half = training(dtype=torch.bfloat16)
    with pytest.raises(Refused, match="half precision already"):
        switched_on(half)
    two = training()
    second = torch.optim.SGD(two.model.parameters(), lr=0.1)
    two.job.saw_optimizer(second)
    with pytest.raises(Refused, match="one optimizer"):
        switched_on(two)
    with torch.autocast("cpu"), pytest.raises(Refused, match="autocast is on"):
        switched_on(training())
    normed = loop_of(lambda: nn.Sequential(_weight_normed()))
    with pytest.raises(Refused, match="made of its parameters"):
        switched_on(normed)


def _weight_normed() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(nn.Linear(16, 4))


def test_keys_and_values_of_attention_come_in_full_and_those_of_the_call_stay() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=32)
    model, tokens = transformers.GPT2LMHeadModel(config), torch.randint(0, 64, (2, 8))
    with torch.autocast("cpu", torch.bfloat16):
        given = model(input_ids=tokens, labels=tokens)
    found = map_tensors(torch, given, lambda each: each.float())
    assert type(found) is type(given)
    assert type(found.past_key_values) is type(given.past_key_values)  # type: ignore[attr-defined]
    kinds = [made.past_key_values.layers[1].keys.dtype for made in (given, found)]  # type: ignore[attr-defined]
    assert kinds == [torch.bfloat16, torch.float32]
    with pytest.raises(Abstain, match="DynamicCache"):
        refuse_unseen(torch, ((), {"past_key_values": given.past_key_values}))


def test_objects_of_the_jobs_own_are_left_to_the_plain_call() -> None:
    held = types.SimpleNamespace(h=torch.zeros(2))
    with pytest.raises(Abstain, match="results hold what can't be looked into"):
        map_tensors(torch, (torch.zeros(2), held), lambda each: each)
    with pytest.raises(Abstain, match="arguments hold what can't be looked into"):
        refuse_unseen(torch, ((torch.zeros(2), [held]), {}))
    refuse_unseen(torch, ((torch.zeros(2), [1, None]), {"mode": "train"}))
