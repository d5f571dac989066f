"""Watches of module calls: they see each call, and neither copies, pickles nor scripts take them along."""

import copy
import io
import threading
from collections.abc import Callable
from threading import get_ident

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from autobrrr.agent.live_torch.compiled_code import is_compiled
from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.live_torch.module_call_slot import SLOT, Call, InSlot, beneath, theirs, unwatch, watch
from autobrrr.agent.loop.step_marks import FallbackMarks
from autobrrr.agent.phases.batch_shapes import batch_size, token_count
from autobrrr.agent.phases.loader_watch import LoaderWatch
from autobrrr.agent.phases.phase_clock import PhaseClock
from autobrrr.agent.phases.phase_hooks import PhaseHooks
from autobrrr.agent.phases.sampled_step import FINITE, DeviceLoss
from autobrrr.agent.remedies.model_calls.call_layers import Rank, lead_through
from support.agent import fail


class OwnState(nn.Linear):
    """Hands out its attributes as they lie there."""

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__.copy()


def test_the_batch_is_what_a_step_learns_from_not_what_it_acts_on() -> None:
    model = nn.Linear(4, 3)
    clock, take_off = by_phase_hooks(model)
    clock.begin(0)
    with torch.no_grad():
        model(torch.ones(4))
    assert clock.samples == 4
    for rows in (2, 8):
        model(torch.ones(rows, 4))
        assert clock.samples == 2
    take_off()


def saved(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def scripted(model: nn.Module) -> nn.Module:
    return torch.jit.script(model)


def traced(model: nn.Module) -> nn.Module:
    return torch.jit.trace(model, torch.ones(2, 4))


def by_phase_hooks(model: nn.Module) -> tuple[PhaseClock, Callable[[], object]]:
    """A burst of sampled steps is on; the clock, and what takes it off."""
    job = Job(torch)
    job.saw_root(model)
    clock = PhaseClock()
    hooks = PhaseHooks(job, clock, LoaderWatch(job), fail)
    clock.owner, clock.on = get_ident(), True
    hooks.watch_roots([model])
    return clock, lambda: hooks.take_off(at_boundary=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("make", [copy.deepcopy, copy.copy, saved, scripted, traced])
@pytest.mark.parametrize("kind", [nn.Linear, OwnState])
def test_a_model_can_be_copied_saved_and_scripted_within_a_sampled_step(
    make: Callable[[nn.Module], nn.Module], kind: type[nn.Module]
) -> None:
    model = kind(4, 3)
    clock, take_off = by_phase_hooks(model)
    twin = make(model)
    with torch.no_grad():
        before = clock.quiet_calls
        out = model(torch.ones(2, 4))
        assert clock.quiet_calls == before + 1, "the model itself is watched"
        torch.testing.assert_close(twin(torch.ones(2, 4)), out)
    if make is not copy.copy or kind is not OwnState:  # that one shares every attribute
        assert clock.quiet_calls == before + 1
        assert not isinstance(vars(twin).get(SLOT), InSlot)
    take_off()
    assert SLOT not in vars(model)
    assert not model._forward_pre_hooks
    assert not model._forward_hooks


def test_a_model_whose_forward_marks_the_steps_can_be_copied_and_saved() -> None:
    events: list[str] = []
    model = nn.Linear(4, 3)
    job = Job(torch)
    scouts = FallbackMarks(torch, job, lambda source, _: events.append(source), fail)
    scouts.put_on_rest(compiled=False)
    job.saw_root(model)
    scouts.put_on_rest(compiled=False)
    twins = [copy.deepcopy(model), saved(model), scripted(model)]
    model(torch.ones(2, 4))
    assert events == ["forward"]
    for twin in twins:
        twin(torch.ones(2, 4))
    assert events == ["forward"]
    scouts.keep_only(None)
    model(torch.ones(2, 4))
    assert events == ["forward"]
    assert SLOT not in vars(model)


def test_a_remedy_goes_on_and_off_beneath_a_watch_and_above_none() -> None:
    seen: list[str] = []

    def layer(call: Call) -> Call:
        def led(*args: object, **kwargs: object) -> object:
            seen.append("remedy")
            return call(*args, **kwargs)

        return led

    model = nn.Linear(4, 3)
    outer = watch(model, lambda *_: seen.append("enter"), lambda *_: seen.append("leave"))
    assert theirs(model) is None
    assert not is_compiled(model)
    undo = lead_through(model, Rank.PRECISION, layer)
    inner = watch(model, lambda *_: seen.append("second"), None)
    model(torch.ones(2, 4))
    assert seen == ["second", "enter", "remedy", "leave"]
    unwatch(outer)
    seen.clear()
    model(torch.ones(2, 4))
    assert seen == ["second", "remedy"]
    undo()
    seen.clear()
    model(torch.ones(2, 4))
    assert seen == ["second"]
    assert beneath(model) is None
    unwatch(inner)
    assert SLOT not in vars(model)


def cloned(model: nn.Linear) -> nn.Linear:
    """Made of the attributes of another one, as learn2learn's clones and replicas of DataParallel are."""
    clone = model.__new__(type(model))
    clone.__dict__ = model.__dict__.copy()
    clone._parameters = {name: torch.zeros_like(each) for name, each in model._parameters.items()}
    return clone


@pytest.mark.parametrize("copied", [cloned, lambda model: model._replicate_for_data_parallel()])
def test_a_module_made_of_another_s_attributes_is_called_itself_and_not_watched(
    copied: Callable[[nn.Linear], nn.Linear],
) -> None:
    seen: list[object] = []
    model = nn.Linear(4, 3)
    ours = watch(model, lambda *_: seen.append("first"), None)
    more = watch(model, lambda *_: seen.append("second"), None)
    other = copied(model)
    other._parameters = {name: torch.zeros_like(each) for name, each in model._parameters.items()}
    assert torch.equal(other(torch.ones(2, 4)), torch.zeros(2, 3))
    assert not seen
    assert model(torch.ones(2, 4)).count_nonzero()
    assert seen == ["second", "first"]
    unwatch(ours)
    unwatch(more)
    del model
    assert torch.equal(other(torch.ones(2, 4)), torch.zeros(2, 3))


def test_a_call_that_has_begun_goes_on_where_the_watch_is_taken_off_meanwhile() -> None:
    seen: list[str] = []
    model = nn.Linear(4, 3)
    ours = watch(model, lambda *_: unwatch(ours), lambda *_: seen.append("leave"))
    assert model(torch.ones(2, 4)).shape == (2, 3)
    assert SLOT not in vars(model)
    assert not seen


def test_a_job_may_iterate_over_a_modules_dict_while_its_watch_comes_off() -> None:
    """From the agent's thread: the dict keeps its length meanwhile."""
    model = nn.Linear(4, 4)
    ours = watch(model, None, None)
    for name in vars(model):
        if name == "training":
            thread = threading.Thread(target=unwatch, args=(ours,))
            thread.start()
            thread.join()
    assert vars(model)[SLOT] is None
    copied = copy.deepcopy(model)
    assert model(torch.ones(2, 4)).equal(copied(torch.ones(2, 4)))
    unwatch(watch(model, None, None))
    assert SLOT not in vars(model)


class Noted(TorchFunctionMode):
    """A mode of the job's own; the functions that it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(
        self, function: object, types: object, args: tuple[object, ...] = (), kwargs: object = None
    ) -> object:
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))  # type: ignore[operator]


def test_a_mode_of_the_job_s_own_sees_none_of_what_the_hooks_read() -> None:
    model, batch = nn.Linear(4, 3), torch.zeros(2, 4, dtype=torch.int64)
    with Noted() as plain:
        model(batch.float())
    clock, take_off = by_phase_hooks(model)
    clock.begin(0)
    with Noted() as watched:
        model(batch.float())
        assert (batch_size([batch]), token_count([batch])) == (2, 8)
        assert DeviceLoss(torch).finite(torch.ones(()).detach()) == FINITE
    assert clock.samples == 2
    take_off()
    made = ["ones", "detach"]
    assert len(watched.seen) == len(plain.seen) + len(made), watched.seen
