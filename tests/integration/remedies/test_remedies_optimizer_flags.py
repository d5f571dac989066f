"""An optimizer remedy is on for steps only: checkpoints, later changes and an undo show the owner's flags."""

import copy
from fractions import Fraction

import pytest
import torch
from torch import nn

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import Refused, WatchedUndo
from support.agent.remedies import training
from support.updates import Seen

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("first_order")]

ON = {"fused": REGISTRY["optimizer.fused"], "foreach": REGISTRY["optimizer.foreach"]}
EVERY = pytest.mark.parametrize("kind", list(ON))
OF_TORCH = ("AdamW", "AdamW amsgrad", "Adam two groups", "SGD", "SGD momentum", "Adagrad")


@pytest.fixture(autouse=True)
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad, put=monkeypatch.setattr)


def flags(optimizer: torch.optim.Optimizer) -> list[tuple[object, object]]:
    return [(group["fused"], group["foreach"]) for group in optimizer.param_groups]


@pytest.mark.parametrize("name", OF_TORCH)
@EVERY
def test_steps_use_it_and_checkpoints_hold_the_owners_flags(kind: str, name: str, seen: Seen) -> None:
    loop = training(name)
    before = loop.optimizer.state_dict()["param_groups"]
    undo = ON[kind].apply(loop.job, {})
    loop.train(2)
    assert seen.last == kind
    assert loop.optimizer.state_dict()["param_groups"] == before
    undo()
    assert loop.optimizer.state_dict()["param_groups"] == before
    loop.train(1)
    assert seen.last == "plain"


@EVERY
def test_a_checkpoint_that_is_loaded_later_switches_nothing_on(kind: str, seen: Seen) -> None:
    loop = training()
    undo = ON[kind].apply(loop.job, {})
    loop.train(1)
    saved = copy.deepcopy(loop.optimizer.state_dict())
    undo()
    loop.optimizer.load_state_dict(saved)
    loop.train(1)
    assert seen.last == "plain"


@EVERY
def test_a_checkpoint_loaded_while_it_is_on_ends_it_with_a_reason(kind: str, seen: Seen) -> None:
    loop = training()
    undo = ON[kind].apply(loop.job, {})
    assert isinstance(undo, WatchedUndo)
    assert undo.trouble() is None
    loop.optimizer.load_state_dict(loop.optimizer.state_dict())
    assert undo.trouble() == "the job has set the flags of its optimizer since"
    loop.train(1)
    assert seen.last == "plain"
    undo()
    assert flags(loop.optimizer) == [(None, None)]


@EVERY
def test_a_group_added_while_it_is_on_keeps_its_own_flags(kind: str) -> None:
    loop = training()
    undo = ON[kind].apply(loop.job, {})
    loop.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))], "foreach": False})
    undo()
    assert flags(loop.optimizer) == [(None, None), (None, False)]


def test_step_counts_go_where_fused_kernels_read_them_and_back() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        loop = training("AdamW", dtype=torch.float64)
        (group,) = loop.optimizer.param_groups
        undo = ON["fused"].apply(loop.job, {})
        loop.train(3)
        undo()
        steps = [loop.optimizer.state[each]["step"] for each in group["params"]]
        assert {(each.dtype, each.item()) for each in steps} == {(torch.float64, 5.0)}
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_parameter_that_was_never_updated_stands_in_the_way() -> None:
    trained, frozen = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3), requires_grad=False)
    trained.grad = torch.ones(3)
    optimizer = torch.optim.SGD([trained, frozen], momentum=0.9)
    optimizer.step()
    job = training().job
    job.saw_optimizer(optimizer)
    job.optimizers[:] = [optimizer]
    with pytest.raises(Refused, match="never been updated"):
        ON["fused"].apply(job, {})


def test_a_refusal_says_what_torch_said() -> None:
    loop = training()
    loop.optimizer.param_groups[0]["lr"] = Fraction(1, 10)
    with pytest.raises(Refused, match=r"torch refuses fused for torch.float32 on cpu: .*invalid combination"):
        ON["fused"].apply(loop.job, {})
