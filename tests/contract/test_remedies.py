"""What every remedy promises, over the whole table: applies, undoes, refuses, keeps its class."""

import gc
from random import Random

import pytest
import torch

from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import Refused, Remedy, WatchedUndo
from support.agent.remedies import UNDONE, Training, job_for, options_of, pairs, picture, release

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("first_order", "machine_as_before", "no_kernels"),
]

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]
EVERY = pytest.mark.parametrize("remedy", REGISTRY.values(), ids=list(REGISTRY))


@EVERY
def test_every_remedy_says_what_it_is(remedy: Remedy) -> None:
    assert remedy.treats
    assert remedy.targets
    assert remedy.doc.endswith(".")
    assert all(option.doc.endswith(".") for option in remedy.options)
    assert all(
        option.default is None or option.problem_with(option.default) is None for option in remedy.options
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("remedy", "optimizer"), pairs())
def test_an_undo_puts_everything_back(remedy: Remedy, optimizer: str, device: str) -> None:
    loop = job_for(remedy, optimizer, device)
    before = picture(loop)
    try:
        undo = remedy.apply(loop.job, options_of(remedy))
    except Refused:
        assert picture(loop) == before
        return
    applied = picture(loop)
    undo()
    release(remedy)
    assert applied != before, "picture() in support/agent/remedies.py does not show what it changes"
    assert picture(loop) == before
    undo()
    assert picture(loop) == before


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("remedy", "optimizer"), pairs())
def test_undone_in_the_middle_training_goes_on_as_the_class_says(
    remedy: Remedy, optimizer: str, device: str
) -> None:
    untouched, cured = job_for(remedy, optimizer, device), job_for(remedy, optimizer, device)
    shape = {name: picture(cured)[name] for name in ("groups", "optimizer", "class", "modules")}
    torch.manual_seed(5)
    untouched.train(20)
    torch.manual_seed(5)
    cured.train(5)
    try:
        undo = remedy.apply(cured.job, options_of(remedy))
    except Refused:
        pytest.skip("does not fit this optimizer")
    cls = remedy.cls
    cured.train(5)
    assert not isinstance(undo, WatchedUndo) or undo.trouble() is None
    undo()
    release(remedy)
    cured.train(10)
    found, expected = picture(cured), picture(untouched)
    if cls == "bitwise":
        assert found["weights"] == expected["weights"]
        assert found["state"] == expected["state"]
    for mine, plain in zip(cured.model.parameters(), untouched.model.parameters(), strict=True):
        if cls != "changes-training":
            torch.testing.assert_close(mine, plain, rtol=1e-3, atol=1e-5)
    assert [[kind(entry) for entry in state] for state in found["state"]] == [
        [kind(entry) for entry in state] for state in expected["state"]
    ]
    assert found["random"] == expected["random"]
    groups = [[entry for entry in group if entry[0] != "params"] for group in found["groups"]]
    assert groups == [[entry for entry in group if entry[0] != "params"] for group in shape["groups"]]
    assert {name: found[name] for name in ("optimizer", "class", "modules")} == {
        name: shape[name] for name in ("optimizer", "class", "modules")
    }


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("remedy", UNDONE.values(), ids=list(UNDONE))
def test_a_hundred_undos_at_random_boundaries_leave_everything_as_it_was(remedy: Remedy) -> None:
    untouched, cured, luck = job_for(remedy), job_for(remedy), Random(remedy.name)
    cured.reads = remedy.reach == "next_epoch"
    for turn in range(100):
        before, after = luck.randrange(4), luck.randrange(4)
        torch.manual_seed(turn)
        untouched.train(before + after)
        torch.manual_seed(turn)
        cured.train(before)
        shown = lasting(cured)
        try:
            undo = remedy.apply(cured.job, options_of(remedy))
        except Refused as refused:
            if turn:
                raise
            pytest.skip(str(refused))
        cured.train(after)
        undo()
        release(remedy)
        assert lasting(cured) == shown, turn
        if remedy.cls == "bitwise":
            assert picture(cured)["weights"] == picture(untouched)["weights"], turn
            assert picture(cured)["state"] == picture(untouched)["state"], turn


@pytest.mark.parametrize("remedy", UNDONE.values(), ids=list(UNDONE))
def test_a_remedy_that_is_on_refuses_to_be_applied_again(remedy: Remedy) -> None:
    if remedy.name == "gc.freeze":
        gc.collect()
    loop = job_for(remedy)
    if "cuda" in remedy.needs and not torch.cuda.is_available():
        with pytest.raises(Refused, match="CUDA"):
            remedy.apply(loop.job, options_of(remedy))
        return
    undo = remedy.apply(loop.job, options_of(remedy))
    during = picture(loop)
    with pytest.raises(Refused, match="already"):
        remedy.apply(loop.job, options_of(remedy))
    assert picture(loop) == during
    undo()


@EVERY
def test_a_job_without_anything_gets_a_reason_or_a_cure_and_no_other_error(remedy: Remedy) -> None:
    try:
        remedy.apply(Job(torch), options_of(remedy))()
    except Refused as refused:
        why = str(refused)
    else:
        why = "applied"
    assert why


@EVERY
def test_options_that_do_not_exist_or_fit_are_refused(remedy: Remedy) -> None:
    with pytest.raises(Refused, match="no option"):
        remedy.option_values({"speed": 9})
    for option in remedy.options:
        with pytest.raises(Refused, match="must be"):
            remedy.option_values({option.name: "many"})
        with pytest.raises(Refused, match="must be"):
            remedy.option_values({option.name: 1.5 if option.kind == "bool" else True})


def lasting(loop: Training) -> dict[str, object]:
    """What steps leave as it is: of tensors that are trained, all but their values."""
    found = picture(loop)
    weights, state, groups = found.pop("weights"), found.pop("state"), found.pop("groups")
    found["weights"] = [each[:3] for each in weights]  # type: ignore[attr-defined]
    found["state"] = [[kind(entry) for entry in each] for each in state]  # type: ignore[attr-defined]
    found["groups"] = [[entry for entry in each if entry[0] != "params"] for each in groups]  # type: ignore[attr-defined]
    return found | {"random": None}


def kind(entry: object) -> object:
    """Name, dtype, device and stride of one entry of an optimizer's state, without its values."""
    name, value = entry  # type: ignore[misc]
    return (name, value[:3]) if isinstance(value, tuple) else (name, type(value))
