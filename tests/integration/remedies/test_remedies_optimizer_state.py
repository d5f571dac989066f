"""While an optimizer remedy is on, nothing that the job reads or saves says so, and nothing carries it on."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from autobrrr.injected.live_torch.compiled_code import compiled_graphs
from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.registry import Refused, Undo, WatchedUndo
from support.injected.remedies import UPDATES, Training, loop_of, training
from support.updates import Seen

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("first_order")]

FUSED, FOREACH = REGISTRY["optimizer.fused"], REGISTRY["optimizer.foreach"]
ON = {"fused": FUSED, "foreach": FOREACH}
EVERY = pytest.mark.parametrize("kind", list(ON))
SAME_MEMORY = "two tensors that it writes (parameters, state) lie in the same memory"
FUSABLE = ("AdamW", "AdamW amsgrad", "Adam two groups", "SGD", "SGD momentum", "Adagrad")


@pytest.fixture(autouse=True)
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad, put=monkeypatch.setattr)


def saved(thing: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    return buffer.getvalue()


def flags(optimizer: torch.optim.Optimizer) -> object:
    """All that the job can read of it but its numbers."""
    groups = [[(k, v) for k, v in group.items() if k != "params"] for group in optimizer.param_groups]
    state = [
        [(k, v.dtype, v.device, v.stride()) for k, v in each.items() if isinstance(v, torch.Tensor)]
        for each in optimizer.state.values()
    ]
    return groups, dict(optimizer.defaults), repr(optimizer), list(vars(optimizer)), state


def twins(name: str, kind: str) -> tuple[Training, Training, Undo]:
    """One that is never touched, one with the remedy on; both have trained alike meanwhile."""
    plain, cured = training(name), training(name)
    undo = ON[kind].apply(cured.job, {})
    train_alike(plain, cured)
    return plain, cured, undo


def train_alike(*loops: Training, steps: int = 2) -> None:
    for loop in loops:
        torch.manual_seed(7)
        loop.train(steps)


@pytest.mark.parametrize("name", FUSABLE)
@EVERY
def test_the_job_reads_what_it_would_read_without_us(kind: str, name: str, seen: Seen) -> None:
    plain, cured, undo = twins(name, kind)
    assert seen.last == kind
    assert flags(cured.optimizer) == flags(plain.optimizer)
    undo()
    assert flags(cured.optimizer) == flags(plain.optimizer)


@pytest.mark.parametrize("name", ["AdamW", "SGD momentum"])
def test_what_is_saved_while_on_is_to_the_byte_what_an_untouched_job_saves(name: str) -> None:
    plain, cured, undo = twins(name, "foreach")  # of one implementation's bits
    ways: list[Callable[[torch.optim.Optimizer], object]] = [
        lambda optimizer: optimizer,
        lambda optimizer: optimizer.state_dict(),
        copy.deepcopy,
        lambda optimizer: pickle.loads(pickle.dumps(optimizer)),
    ]
    for way in ways:
        assert saved(way(cured.optimizer)) == saved(way(plain.optimizer))
    undo()


@EVERY
def test_a_checkpoint_that_is_loaded_later_switches_nothing_on(kind: str, seen: Seen) -> None:
    _, cured, undo = twins("AdamW", kind)
    assert seen.last == kind
    best, copied = copy.deepcopy(cured.optimizer.state_dict()), copy.deepcopy(cured.optimizer)
    body = saved(cured.optimizer)
    undo()
    cured.optimizer.load_state_dict(best)
    cured.train(1)
    assert seen.last == "plain"
    again = torch.load(io.BytesIO(body), weights_only=False)
    for optimizer in (copied, again):
        for group in optimizer.param_groups:
            assert (group["fused"], group["foreach"]) == (None, None)
            for each in group["params"]:
                each.grad = torch.ones_like(each)
        optimizer.step()
        assert seen.last == "plain"


@EVERY
def test_a_copy_made_while_on_is_none_of_ours(kind: str, seen: Seen) -> None:
    _, cured, undo = twins("AdamW", kind)
    copied = copy.deepcopy(cured.optimizer)
    for each in copied.param_groups[0]["params"]:
        each.grad = torch.ones_like(each)
    copied.step()
    assert seen.last == "plain"
    cured.train(1)
    assert seen.last == kind
    undo()


@EVERY
def test_a_closure_reads_the_jobs_own_flags_and_an_error_in_it_leaves_them(kind: str, seen: Seen) -> None:
    loop = training()
    undo = ON[kind].apply(loop.job, {})
    read = []

    def closure() -> float:
        read.append((loop.optimizer.param_groups[0]["fused"], loop.optimizer.param_groups[0]["foreach"]))
        if len(read) > 1:
            raise ValueError("the job's own")
        return 0.0

    loop.optimizer.step(closure)
    assert seen.last == kind
    with pytest.raises(ValueError, match="the job's own"):
        loop.optimizer.step(closure)
    assert read == [(None, None)] * 2
    assert flags(loop.optimizer) == flags(training().optimizer)
    undo()


@EVERY
def test_a_group_that_is_added_while_on_updates_as_the_job_says(kind: str, seen: Seen) -> None:
    loop = training()
    undo = ON[kind].apply(loop.job, {})
    extra = nn.Parameter(torch.zeros(3))
    extra.grad = torch.ones(3)
    loop.optimizer.add_param_group({"params": [extra]})
    group = loop.optimizer.param_groups[-1]
    assert (group["fused"], group["foreach"]) == (None, None)
    loop.optimizer.zero_grad()
    extra.grad = torch.ones(3)
    loop.optimizer.step()
    assert seen.last == "plain"
    undo()


@EVERY
def test_flags_that_are_loaded_while_on_are_the_jobs(kind: str, seen: Seen) -> None:
    loop = training()
    undo = ON[kind].apply(loop.job, {})
    loop.optimizer.load_state_dict(loop.optimizer.state_dict())
    loop.train(1)
    assert seen.last == kind
    own = loop.optimizer.state_dict()
    own["param_groups"][0]["differentiable"] = False
    own["param_groups"][0]["fused"] = True
    loop.optimizer.load_state_dict(own)
    loop.train(1)
    undo()
    assert loop.optimizer.param_groups[0]["fused"] is True
    loop.train(1)
    assert seen.last == "fused"


def test_state_that_is_loaded_in_another_order_ends_the_remedy_with_a_reason_and_no_wrong_update() -> None:
    def flat(loop: Training) -> None:
        found = loop.optimizer.state_dict()
        for state in found["state"].values():
            if state["exp_avg"].dim() == 2:
                state["exp_avg"] = state["exp_avg"].t().contiguous().t()
        loop.optimizer.load_state_dict(found)

    plain, cured, undo = twins("AdamW", "fused")
    assert isinstance(undo, WatchedUndo)
    for loop in (plain, cured):
        flat(loop)
    # torch itself keeps what is loaded in its own order.
    strides = [state["exp_avg"].stride() for state in cured.optimizer.state.values()]
    assert (1, 64) in strides or (1, 16) in strides
    train_alike(plain, cured)
    assert undo.trouble() == "a gradient or state lies in memory in another order than its parameter"
    for mine, theirs in zip(cured.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    undo()


@pytest.mark.parametrize("what", ["weights", "gradients"])
def test_what_comes_to_lie_in_another_order_ends_the_remedy_and_no_update_is_wrong(what: str) -> None:
    def images() -> nn.Module:
        return nn.Sequential(nn.Unflatten(1, (4, 2, 2)), nn.Conv2d(4, 8, 3, padding=1), nn.Flatten())

    def change(loop: Training) -> None:
        if what == "weights":
            loop.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            return
        loop.model[1].weight.register_post_accumulate_grad_hook(  # type: ignore[index]
            lambda each: setattr(each, "grad", each.grad.to(memory_format=torch.channels_last))
        )

    plain, cured = loop_of(images), loop_of(images)
    undo = FUSED.apply(cured.job, {})
    assert isinstance(undo, WatchedUndo)
    train_alike(plain, cured)
    for loop in (plain, cured):
        change(loop)
    train_alike(plain, cured)
    assert undo.trouble() == "a gradient or state lies in memory in another order than its parameter"
    for mine, theirs in zip(cured.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    undo()


def test_step_counts_that_fused_kernels_do_not_take_stay_the_jobs_and_are_counted_on() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        plain, cured = (loop_of(lambda: nn.Linear(16, 4), "AdamW", dtype=torch.float64) for _ in range(2))
        undo = FUSED.apply(cured.job, {})
        counts = [state["step"] for state in cured.optimizer.state.values()]
        assert {count.dtype for count in counts} == {torch.float64}
        train_alike(plain, cured, steps=3)
        for loop in (plain, cured):  # the job sets them back
            for state in loop.optimizer.state.values():
                state["step"].fill_(1.0)
        train_alike(plain, cured, steps=3)
        assert all(
            a is state["step"] for a, state in zip(counts, cured.optimizer.state.values(), strict=True)
        )
        assert [float(count) for count in counts] == [4.0] * len(counts)
        assert flags(cured.optimizer) == flags(plain.optimizer)
        for mine, theirs in zip(cured.model.parameters(), plain.model.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)
        undo()
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_parameter_whose_first_gradient_comes_later_is_updated_as_without_us() -> None:
    def left(*, on: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        made = [nn.Parameter(torch.randn(4)) for _ in range(3)]
        optimizer = torch.optim.SGD(made, lr=0.1, momentum=0.9)
        job, undo = Job(torch), None
        job.saw_optimizer(optimizer)
        for step in range(6):
            for number, each in enumerate(made):
                each.grad = torch.randn(4) if number != step % 3 or step > 2 else None
            made[2].grad = None if step < 4 else made[2].grad
            optimizer.step()
            if on and undo is None:
                undo = REGISTRY["optimizer.fused"].apply(job, {})
        if undo is not None:
            assert isinstance(undo, WatchedUndo)
            assert undo.trouble() is None
            undo()
        return list(made)

    for mine, theirs in zip(left(on=True), left(on=False), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"maximize": True}])
def test_gradients_are_what_they_were_after_an_update_of_lists(options: dict[str, object]) -> None:
    def left(*, on: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        made = [nn.Parameter(torch.randn(4)) for _ in range(3)]
        optimizer = torch.optim.SGD(made, lr=0.1, momentum=0.9, nesterov=True, **options)  # type: ignore[arg-type]
        job = Job(torch)
        job.saw_optimizer(optimizer)
        undo = REGISTRY["optimizer.foreach"].apply(job, {}) if on else lambda: None
        found = []
        for step in range(4):
            for each in made:
                each.grad = torch.ones(1).expand(4) if step == 2 else torch.randn(4)
            optimizer.step()
            found += [each.grad.clone() for each in made if each.grad is not None]
        undo()
        return [*found, *made]

    assert all(map(torch.equal, left(on=True), left(on=False)))


@EVERY
def test_another_optimizer_of_the_class_updates_as_before(kind: str, seen: Seen) -> None:
    loop, other = training(), training()
    undo = ON[kind].apply(loop.job, {})
    other.train(1)
    assert seen.last == "plain"
    loop.train(1)
    assert seen.last == kind
    undo()


@EVERY
def test_undone_torch_is_as_it_was(kind: str) -> None:
    before = [dict(vars(module)) for module in UPDATES]
    loops = [training("AdamW"), training("SGD momentum")]
    undos = [ON[kind].apply(loop.job, {}) for loop in loops]
    for undo in undos:
        undo()
    assert [dict(vars(module)) for module in UPDATES] == before


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("AdamW", "lr", np.array(0.02)),
        ("AdamW", "lr", Fraction(1, 50)),
        ("Adam", "betas", (torch.tensor(0.8), torch.tensor(0.9))),
        ("SGD momentum", "momentum", np.float32(0.8)),
    ],
)
@EVERY
def test_settings_that_only_the_plain_update_takes_go_to_it(
    kind: str, name: str, setting: str, value: object, seen: Seen
) -> None:
    plain, cured, undo = twins(name, "foreach") if kind == "foreach" else (*two(name), lambda: None)
    if kind == "fused":
        undo = FUSED.apply(cured.job, {})
    for loop in (plain, cured):
        loop.optimizer.param_groups[0][setting] = value
    train_alike(plain, cured)
    undo()
    assert all(map(torch.equal, plain.model.parameters(), cured.model.parameters()))


def two(name: str) -> tuple[Training, Training]:
    """Twins that nothing has been done to."""
    return training(name), training(name)


@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="gradients are of the parameter's type")
@EVERY
def test_gradients_that_come_to_be_of_another_type_are_used_as_the_job_says(kind: str) -> None:
    plain, cured, undo = twins("SGD", kind)
    for loop in (plain, cured):
        for each in loop.model.parameters():
            each.grad_dtype = None
            each.register_post_accumulate_grad_hook(lambda each: setattr(each, "grad", each.grad.bfloat16()))
    train_alike(plain, cured)
    assert isinstance(undo, WatchedUndo)
    assert "of another type than its parameter" in str(undo.trouble())
    for mine, theirs in zip(cured.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    undo()


def reset_counts(loop: Training) -> None:
    count = torch.zeros(())
    for state in loop.optimizer.state.values():
        state["step"] = count


def share_momentum(loop: Training) -> None:
    first, last = loop.model[0].weight, loop.model[3].weight  # type: ignore[index]
    momentum = torch.zeros(first.numel())
    for each in (first, last):
        loop.optimizer.state[each]["momentum_buffer"] = momentum[: each.numel()].view_as(each)


@pytest.mark.parametrize(
    ("name", "share"), [("AdamW", reset_counts), ("SGD momentum", share_momentum)], ids=["count", "momentum"]
)
@EVERY
def test_state_that_parameters_come_to_share_is_updated_for_one_after_the_other(
    kind: str, name: str, share: Callable[[Training], None]
) -> None:
    plain, cured = training(name), training(name)
    undo = ON[kind].apply(cured.job, {})
    for loop in (plain, cured):
        share(loop)
    train_alike(plain, cured)
    assert isinstance(undo, WatchedUndo)
    assert undo.trouble() == SAME_MEMORY
    undo()
    assert all(map(torch.equal, plain.model.parameters(), cured.model.parameters()))
    with pytest.raises(Refused, match="lie in the same memory"):
        ON[kind].apply(cured.job, {})


def test_a_model_that_changes_its_type_ends_a_fused_update_and_trains_on() -> None:
    plain, cured, undo = twins("SGD momentum", "fused")
    for loop in (plain, cured):
        loop.model.double()
    train_alike(plain, cured)
    for mine, theirs in zip(cured.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)
    assert isinstance(undo, WatchedUndo)
    assert "of another type" in str(undo.trouble())
    undo()


@EVERY
def test_a_job_may_swap_its_parameters(kind: str, seen: Seen) -> None:
    plain, cured, undo = twins("AdamW", kind)
    for loop in (plain, cured):
        for each in loop.model.parameters():
            torch.utils.swap_tensors(each, nn.Parameter(each.detach() / 2))
    train_alike(plain, cured)
    assert seen.last == kind
    for mine, theirs in zip(cured.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    undo()


@EVERY
def test_parameters_that_come_to_share_memory_are_updated_one_after_the_other(kind: str) -> None:
    def tie(loop: Training) -> None:
        loop.model[3].weight.data = loop.model[0].weight.data.view(-1)[:256].view(4, 64)  # type: ignore[index]

    plain, cured, undo = twins("SGD momentum", kind)
    before = [each.detach().clone() for each in plain.model.parameters()]
    for loop in (plain, cured):
        with torch.no_grad():
            for each, value in zip(loop.model.parameters(), before, strict=True):
                each.copy_(value)
        loop.optimizer.state.clear()
        tie(loop)
    train_alike(plain, cured)
    assert isinstance(undo, WatchedUndo)
    assert undo.trouble() == SAME_MEMORY
    undo()
    assert all(map(torch.equal, plain.model.parameters(), cured.model.parameters()))


@pytest.mark.parametrize("name", ["SGD momentum", "RMSprop", "Adagrad"])
def test_a_model_that_goes_to_half_precision_with_its_state_is_updated_as_the_job_says(name: str) -> None:
    plain, cured, undo = twins(name, "foreach")
    for loop in (plain, cured):
        loop.model.bfloat16()
        loop.optimizer.load_state_dict(loop.optimizer.state_dict())
    train_alike(plain, cured, steps=30)
    assert isinstance(undo, WatchedUndo)
    assert undo.trouble() == "a parameter has come to be of another type or on another device"
    undo()
    assert all(map(torch.equal, plain.model.parameters(), cured.model.parameters()))


@EVERY
def test_a_step_that_the_job_has_compiled_is_not_compiled_anew(kind: str) -> None:
    loop = training("SGD momentum")
    step = torch.compile(loop.optimizer.step, backend="eager", fullgraph=False)
    loop.train(1)
    step()
    before = compiled_graphs()
    with pytest.raises(Refused, match="has compiled its step"):
        ON[kind].apply(loop.job, {})
    step()
    assert compiled_graphs() == before > 0
    torch._dynamo.reset()
    ON[kind].apply(loop.job, {})()


def test_an_adamw_that_has_no_step_of_its_own_is_cured_too() -> None:
    """As where an Adam was made first: torch then wraps the step of both."""
    script = (
        "import torch\n"
        "from autobrrr.injected.live_torch.live_job import Job\n"
        "from autobrrr.injected.remedies.families import REGISTRY\n"
        "kinds = torch.optim.Adam, torch.optim.AdamW\n"
        "made = [kind([torch.nn.Parameter(torch.ones(2))]) for kind in kinds]\n"
        "job = Job(torch)\n"
        "job.saw_optimizer(made[1])\n"
        "before = dict(vars(torch.optim.AdamW))\n"
        "REGISTRY['optimizer.fused'].apply(job, {})()\n"
        "print('step' in before, dict(vars(torch.optim.AdamW)) == before)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "False True\n", done.stderr
