"""What the job sees and saves: the same while a remedy is on, but for what is declared; and after it."""

import copy
import io
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from autobrrr.agent.remedies.registry import Refused, Remedy, Undo, WatchedUndo
from support.agent.remedies import UNDONE, Training, job_for, options_of, pairs, release
from support.agent.visible import differing, optimizer_state, visible_state
from support.training import ran

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("first_order", "machine_as_before", "no_kernels"),
]

SAVES: dict[str, Callable[[Training], object]] = {
    "state_dict of the model": lambda loop: loop.model.state_dict(),
    "state_dict of the optimizer": lambda loop: loop.optimizer.state_dict(),
    "the model": lambda loop: loop.model,
    "the optimizer": lambda loop: loop.optimizer,
    "a copy of the model": lambda loop: copy.deepcopy(loop.model),
    "a copy of the optimizer": lambda loop: copy.deepcopy(loop.optimizer),
    "both in one": lambda loop: copy.deepcopy({"model": loop.model, "optimizer": loop.optimizer}),
    "the model, pickled": lambda loop: pickle.loads(pickle.dumps(loop.model)),
    "the random state": lambda loop: torch.get_rng_state(),
}
WEIGHTS = ("state_dict", "the model", "the optimizer", "a copy", "both in one")
# What legitimately shows in what is saved while a remedy is on, and why it can't be otherwise.
SHOWS = {
    # The weights themselves lie in another order of memory, and torch.save writes memory as it lies.
    "layout.channels_last": WEIGHTS,
    # Flags stand in the param groups; only `state_dict` has a hook that shows the owner's.
    "optimizer.fused": ("the optimizer", "a copy of the optimizer", "both in one"),
    "optimizer.foreach": ("the optimizer", "a copy of the optimizer", "both in one"),
}
STEPS = 6  # after which compiled code is in use
LOADS = """
import sys
for name in ("autobrrr", "autobrrr.agent.remedies"):
    sys.modules[name] = None  # what needs us to be read fails
sys.path.insert(0, sys.argv[1])
import torch
for file in sys.argv[2:]:
    found = torch.load(file, weights_only=False)
    model = found["model"]
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.load_state_dict(found["optimizer"])
    assert not any(group.get("fused") or group.get("foreach") for group in optimizer.param_groups), file
    assert not any(vars(part).get("_compiled_call_impl") for part in model.modules()), file
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()
    print(file)
"""


def saved(thing: object) -> bytes:
    """What torch.save writes of it."""
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    return buffer.getvalue()


def switched_on(remedy: Remedy, loop: Training) -> Undo:
    try:
        return remedy.apply(loop.job, options_of(remedy))
    except Refused as refused:
        pytest.skip(f"does not fit here: {refused}")


def shows(remedy: Remedy, what: str) -> bool:
    return any(what.startswith(each) for each in SHOWS.get(remedy.name, ()))


@pytest.mark.parametrize(("remedy", "optimizer"), pairs())
def test_what_is_saved_while_a_remedy_is_on_is_what_an_untouched_job_saves(
    remedy: Remedy, optimizer: str
) -> None:
    plain, cured = job_for(remedy, optimizer), job_for(remedy, optimizer)
    undo = switched_on(remedy, cured)
    try:
        written = {what: (saved(take(cured)), saved(take(plain))) for what, take in SAVES.items()}
    finally:
        undo()
    other = {what for what, (mine, theirs) in written.items() if mine != theirs}
    assert {what for what in other if not shows(remedy, what)} == set()
    # What is declared and does not show is declared in vain.
    assert bool(other) is (remedy.name in SHOWS)
    assert not any(b"autobrrr" in mine for mine, _ in written.values())


@pytest.mark.parametrize(("remedy", "optimizer"), pairs())
def test_after_steps_with_a_remedy_on_state_is_of_the_same_kinds(remedy: Remedy, optimizer: str) -> None:
    plain, cured = job_for(remedy, optimizer), job_for(remedy, optimizer)
    undo = switched_on(remedy, cured)
    try:
        for loop in (plain, cured):
            torch.manual_seed(5)
            loop.train(STEPS)
        assert not isinstance(undo, WatchedUndo) or undo.trouble() is None  # as at each boundary
        found, expected = (
            {what: saved(take(loop)) for what, take in SAVES.items()} for loop in (cured, plain)
        )
        kinds = [optimizer_state(loop.optimizer)[:5] for loop in (cured, plain)]
        keys = [list(loop.model.state_dict()) for loop in (cured, plain)]
        bitwise = remedy.cls == "bitwise"
    finally:
        undo()
    if remedy.name not in SHOWS:
        assert kinds[0] == kinds[1]
        assert {what: len(body) for what, body in found.items()} == {
            what: len(body) for what, body in expected.items()
        }
    if bitwise and remedy.name not in SHOWS:
        assert found == expected
    assert keys[0] == keys[1]


@pytest.mark.parametrize(("remedy", "optimizer"), pairs())
def test_after_detach_the_job_sees_what_it_saw_before(remedy: Remedy, optimizer: str) -> None:
    loop = job_for(remedy, optimizer)

    def on_and_off() -> None:
        undo = switched_on(remedy, loop)
        with torch.random.fork_rng():
            loop.train(1)
        undo()
        release(remedy)

    on_and_off()  # what torch itself loads or starts on the way is there from now on
    before, drawn = visible_state(loop.model, loop.optimizer, loop.loaders), torch.get_rng_state()
    on_and_off()
    assert differing(before, visible_state(loop.model, loop.optimizer, loop.loaders)) == {}
    assert torch.equal(torch.get_rng_state(), drawn)


def test_a_fresh_process_without_us_loads_what_was_saved_and_nothing_is_on(tmp_path: Path) -> None:
    files = []
    for remedy in UNDONE.values():
        loop = job_for(remedy)
        try:
            undo = remedy.apply(loop.job, options_of(remedy))
        except Refused:
            continue
        try:
            loop.train(1)
            file = tmp_path / f"{remedy.name}.pt"
            torch.save({"model": loop.model, "optimizer": loop.optimizer.state_dict()}, file)
        finally:
            undo()
        files.append(str(file))
    assert len(files) > 8
    tests = str(Path(__file__).resolve().parents[1])
    done = ran([sys.executable, "-c", LOADS, tests, *files], cwd=tmp_path)
    assert done.stdout.split() == files, done.stderr[-2000:]
