"""`layout.channels_last` on live models: strides, trying out before training calls the model so, refusals."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.active_remedies import ActiveRemedies
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.model import channels_last
from autobrrr.injected.remedies.model.layout_call import MOST_KINDS, LaidOut
from autobrrr.injected.remedies.registry import Refused, WatchedUndo
from support.injected.remedies import picture, training

pytestmark = pytest.mark.integration

LAYOUT = REGISTRY["layout.channels_last"]


@pytest.fixture(autouse=True)
def nothing_stays_laid_out(one_thread: None) -> Iterator[None]:
    yield
    assert LAYOUT.release is not None
    LAYOUT.release(torch)


class Convolving(nn.Module):
    """Two convolutions; how their result becomes flat is up to the test."""

    def __init__(self, flatten: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 8, 3)
        self.last = nn.Linear(8 * 4 * 4, 2)
        self.flatten = flatten

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.flatten(self, torch.relu(self.second(torch.relu(self.first(x))))))


class Loop:
    """A job that trains one such model."""

    def __init__(self, flatten: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        torch.manual_seed(3)
        self.model = Convolving(flatten)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.job = Job(torch)
        self.step()
        self.job.saw_root(self.model)
        self.job.saw_optimizer(self.optimizer)

    def step(self, batch: int = 4) -> None:
        self.optimizer.zero_grad()
        self.model(torch.randn(batch, 3, 8, 8)).square().mean().backward()
        self.optimizer.step()

    def switched_on(self) -> WatchedUndo:
        undo = LAYOUT.apply(self.job, {})
        assert isinstance(undo, WatchedUndo)
        return undo

    @property
    def laid_out(self) -> bool:
        return self.model.second.weight.is_contiguous(memory_format=torch.channels_last)


def test_a_model_that_takes_flat_views_of_its_activations_trains_on_in_its_own_layout() -> None:
    plain, cured = (Loop(lambda _model, x: x.view(-1, 8 * 4 * 4)) for _ in range(2))
    torch.manual_seed(5)
    plain.step()
    undo = cured.switched_on()
    torch.manual_seed(5)
    cured.step()
    assert "view size is not compatible" in (undo.trouble() or "")
    assert not cured.laid_out
    assert all(map(torch.equal, plain.model.parameters(), cured.model.parameters()))
    undo()
    assert list(vars(cured.model)) == list(vars(plain.model))
    with pytest.raises(Refused, match="does not fit this model"):
        cured.switched_on()


def test_an_evaluation_that_takes_flat_views_brings_the_old_layout_back_too() -> None:
    loop = Loop(lambda model, x: x.flatten(1) if model.training else x.view(len(x), -1))
    undo = loop.switched_on()
    loop.step()
    assert loop.laid_out
    assert undo.trouble() is None
    loop.model.eval()
    with torch.no_grad():
        assert loop.model(torch.randn(4, 3, 8, 8)).shape == (4, 2)
    assert "view size is not compatible" in (undo.trouble() or "")
    assert not loop.laid_out


def test_a_flat_view_in_a_branch_that_was_not_tried_out_brings_the_old_layout_back() -> None:
    loop = Loop(lambda _model, x: x.view(len(x), -1) if bool((x == 0).all()) else x.flatten(1))
    undo = loop.switched_on()
    loop.step()
    assert loop.laid_out
    assert undo.trouble() is None
    nn.init.zeros_(loop.model.second.weight)
    nn.init.zeros_(loop.model.second.bias)
    assert loop.model(torch.zeros(4, 3, 8, 8)).shape == (4, 2)
    assert "failed with the layout on: RuntimeError: view size" in str(undo.trouble())
    assert not loop.laid_out
    undo()


def test_a_model_that_fits_is_tried_out_once_for_each_kind_of_call(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(lambda _model, x: x.flatten(1))
    tried: list[object] = []
    really = LaidOut._try_out
    monkeypatch.setattr(LaidOut, "_try_out", lambda *given: tried.append(given[1]) or really(*given))
    undo = loop.switched_on()
    loop.step()
    loop.step()
    assert len(tried) == 1
    loop.step(batch=2)
    assert len(tried) == 2
    undo()
    undo = loop.switched_on()
    loop.step()
    assert len(tried) == 2
    assert loop.laid_out
    undo()
    assert not loop.laid_out


def test_a_model_whose_calls_keep_changing_goes_back_to_its_own_layout() -> None:
    loop = Loop(lambda _model, x: x.flatten(1))
    undo = loop.switched_on()
    for batch in range(1, MOST_KINDS + 2):
        loop.step(batch)
    assert "keeps changing" in (undo.trouble() or "")
    assert not loop.laid_out


def test_trying_out_leaves_no_trace_in_training() -> None:
    loop = training(model="images")
    undo = LAYOUT.apply(loop.job, {})
    before = picture(loop)
    gradients = [None if each.grad is None else each.grad.clone() for each in loop.model.parameters()]
    torch.manual_seed(5)
    loop.model.eval()
    with torch.no_grad():
        loop.model(torch.randn(8, 16))
    loop.model.train()
    assert {name: picture(loop)[name] for name in ("weights", "state", "modules")} == {
        name: before[name] for name in ("weights", "state", "modules")
    }
    for each, gradient in zip(loop.model.parameters(), gradients, strict=True):
        assert gradient is not None
        assert each.grad is not None
        assert torch.equal(each.grad, gradient)
    undo()


class OwnUpdate(torch.optim.Optimizer):
    """Reads gradients as flat memory, as Shampoo and Muon do."""

    def __init__(self, params: Iterator[nn.Parameter]) -> None:
        super().__init__(params, {"lr": 0.1})


@pytest.mark.parametrize("kind", [torch.optim.LBFGS, OwnUpdate])
def test_optimizers_that_may_read_gradients_as_flat_memory_are_refused(kind: type) -> None:
    loop = Loop(lambda _model, x: x.flatten(1))
    loop.job.saw_optimizer(optimizer := kind(loop.model.parameters()))
    with pytest.raises(Refused, match=f"{kind.__name__} may read weights or gradients as flat memory"):
        loop.switched_on()
    assert optimizer is not None
    assert not loop.laid_out


def test_a_remedy_that_did_not_fit_is_taken_off_at_the_next_boundary() -> None:
    loop, active = Loop(lambda _model, x: x.view(-1, 8 * 4 * 4)), ActiveRemedies(REGISTRY)
    active.apply(loop.job, "layout.channels_last", {})
    loop.step()
    ((applied, why),) = active.troubles()
    assert "view" in why
    assert active.undo(applied) is None
    loop.step()


def test_a_weight_whose_memory_the_job_holds_elsewhere_is_left_where_it_is() -> None:
    loop = Loop(lambda _, x: x.flatten(1))
    held = loop.model.state_dict()
    with pytest.raises(Refused, match="shares its memory with a tensor of the job's own"):
        loop.switched_on()
    loop.step()
    assert torch.equal(held["first.weight"], loop.model.first.weight)
    del held
    loop.switched_on()()


def test_gradients_that_are_views_of_one_buffer_stay_so() -> None:
    loop = Loop(lambda _, x: x.flatten(1))
    weights = list(loop.model.parameters())
    flat = torch.zeros(sum(each.numel() for each in weights))
    for each, part in zip(weights, flat.split([each.numel() for each in weights]), strict=True):
        each.grad = part.view_as(each)
    with pytest.raises(Refused, match="its gradient or its state shares its memory"):
        loop.switched_on()
    assert not loop.laid_out


@pytest.mark.parametrize("what", ["weight", "state"])
def test_an_undo_leaves_the_layout_of_what_the_job_has_come_to_hold_elsewhere(what: str) -> None:
    loop, active = Loop(lambda _, x: x.flatten(1)), ActiveRemedies(REGISTRY)
    applied = active.apply(loop.job, "layout.channels_last", {})
    loop.step()
    weight = loop.model.second.weight
    held = (weight if what == "weight" else loop.optimizer.state[weight]["exp_avg"]).detach()
    loss = active.undo(applied)
    assert loss is not None
    assert "a weight stays channels_last" in loss.why
    loop.step()
    assert torch.equal(held, weight if what == "weight" else loop.optimizer.state[weight]["exp_avg"])
    assert loop.laid_out
    assert loop.model.first.weight.is_contiguous()


def test_a_model_that_is_called_with_other_weights_gets_its_own_layout_back_and_trains_on() -> None:
    loop = Loop(lambda _, x: x.flatten(1))
    undo = loop.switched_on()
    fast = {name: 1.5 * each for name, each in loop.model.named_parameters()}
    torch.func.functional_call(loop.model, fast, (torch.randn(4, 3, 8, 8),)).sum().backward()
    assert "other parameters than its own" in str(undo.trouble())
    undo()


@pytest.mark.parametrize("where", [torch.inference_mode, torch.no_grad])
def test_an_undo_in_the_middle_of_an_evaluation_leaves_weights_that_can_be_trained(
    where: Callable[[], contextlib.AbstractContextManager[object]],
) -> None:
    loop = Loop(lambda _, x: x.flatten(1))
    undo = loop.switched_on()
    loop.step()
    with where():
        undo()
    loop.step()
    assert loop.model.first.weight.is_contiguous()


def test_an_optimizer_that_the_script_has_fused_itself_is_refused() -> None:
    loop = Loop(lambda _, x: x.flatten(1))
    loop.optimizer = torch.optim.AdamW(loop.model.parameters(), fused=True)
    loop.step()
    loop.job.saw_optimizer(loop.optimizer)
    with pytest.raises(Refused, match="fused update reads what a checkpoint holds"):
        loop.switched_on()


def test_a_model_that_is_first_called_within_a_mode_of_the_job_s_own_is_not_tried_out_in_it() -> None:
    loop = Loop(lambda _, x: x.flatten(1))
    undo = loop.switched_on()
    with FlopCounterMode(display=False) as counted:
        loop.step()
    assert "a mode of the job's own" in str(undo.trouble())
    assert not loop.laid_out
    with FlopCounterMode(display=False) as plain:
        loop.step()
    assert counted.get_total_flops() == plain.get_total_flops()


def test_the_job_may_swap_weights_for_others_while_the_layout_is_on() -> None:
    loop = Loop(lambda _, x: x.flatten(1))
    undo = loop.switched_on()
    loop.step()
    weight, other = loop.model.second.weight, nn.Parameter(torch.zeros_like(loop.model.second.weight))
    torch.utils.swap_tensors(weight, other)
    loop.optimizer.state.clear()
    loop.step()
    undo()
    assert loop.model.second.weight is weight
    assert weight.is_contiguous()
    assert not weight.is_contiguous(memory_format=torch.channels_last)


def test_what_fails_half_way_lays_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(lambda _model, x: x.flatten(1))

    def strides() -> list[object]:
        weights = [loop.model.first.weight, loop.model.second.weight]
        states = [each for weight in weights for each in loop.optimizer.state[weight].values()]
        return [each.stride() for each in (*weights, *(weight.grad for weight in weights), *states)]

    before, calls, copy = strides(), itertools.count(1), channels_last._copy

    def fails_once(*args: object) -> torch.Tensor:
        if next(calls) == 6:  # of the second weight: after its gradient or before its state
            raise RuntimeError("out of memory")
        return copy(*args)  # type: ignore[arg-type, return-value]

    monkeypatch.setattr(channels_last, "_copy", fails_once)
    with pytest.raises(RuntimeError, match="out of memory"):
        LAYOUT.apply(loop.job, {})
    assert strides() == before
