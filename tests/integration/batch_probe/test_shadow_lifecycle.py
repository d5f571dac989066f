"""How a shadow probe comes and goes: cancelled at any moment, in any surroundings, it leaves nothing."""

from __future__ import annotations

import gc
import inspect
import itertools
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

import numpy
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, TensorDataset

from autobrrr.injected.batch_probe.probe_task import ShadowTask
from autobrrr.injected.batch_probe.step_recorder import Recorder, function_modes
from autobrrr.injected.live_torch.compiled_code import CompiledCheck
from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.live_torch.torch_types import Abstain
from autobrrr.injected.loop.boundary_task import Boundary
from support.batch_probe.shadow import gan_with_two_optimizers, mlp, supervised
from support.batch_probe.shadow_loop import Kind, OneLayer, Ticks, live_tensors, told_by_two_ranks, train
from support.batch_probe.shadow_refused import Prints, trap

pytestmark = pytest.mark.integration

CALL = nn.Module.__call__


def traces() -> tuple[object, ...]:
    """Everything global that a probe puts on."""
    module = sys.modules["torch.nn.modules.module"]
    optim = sys.modules["torch.optim.optimizer"]
    return (
        vars(nn.Module).copy(),
        list(vars(nn.Module)),
        vars(torch.autograd).copy(),
        vars(torch.Tensor).copy(),
        [
            dict(hooks)
            for name, hooks in vars(module).items()
            if name.startswith("_global") and isinstance(hooks, dict)
        ],
        [
            dict(hooks)
            for name, hooks in vars(optim).items()
            if name.startswith("_global") and isinstance(hooks, dict)
        ],
        torch.utils._python_dispatch._get_current_dispatch_mode_stack(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.backends.mha.get_fastpath_enabled(),
    )


def test_a_finished_probe_leaves_torch_as_it_was() -> None:
    before = traces()
    outcome = train(mlp, 48, probe=True)
    assert outcome.probed is not None
    assert traces() == before


@pytest.mark.parametrize("make", [mlp, gan_with_two_optimizers])
def test_a_probe_cancelled_at_any_boundary_leaves_training_as_it_was(make: Callable[[], Kind]) -> None:
    never = train(make, 30, probe=False)
    before = traces()
    for boundary in range(1, 28):
        cancelled = train(make, 30, probe=True, cancel_at=boundary)
        assert cancelled.fingerprint == never.fingerprint, boundary
        assert traces() == before, boundary


def test_no_tensor_of_the_job_is_held_after_the_end_even_without_garbage_collection() -> None:
    train(mlp, 40, probe=True)  # what torch itself keeps after its first use
    gc.collect()
    gc.disable()
    try:
        before = live_tensors()
        train(mlp, 40, probe=False)
        without = live_tensors()
        outcome = train(mlp, 40, probe=True)
        assert outcome.probed is not None
        assert outcome.probed["status"] == "ok"
        assert live_tensors() - without <= without - before
    finally:
        gc.enable()


def test_no_tensor_is_held_after_an_abstention_either() -> None:
    gc.collect()
    gc.disable()
    try:
        job = trap(lambda: nn.Sequential(nn.Linear(12, 4), nn.Softmax(0)))
        train(job, 40, probe=True)
        gc.collect()
        before = live_tensors()
        train(job, 40, probe=False)
        without = live_tensors()
        outcome = train(job, 40, probe=True)
        assert outcome.probed is not None
        assert outcome.probed["status"] == "abstained"
        assert live_tensors() - without <= without - before
    finally:
        gc.enable()


def test_cancel_from_another_thread_while_a_step_is_recorded_takes_all_off_at_the_next_module_call() -> None:
    model = nn.Linear(4, 2)
    recorder = Recorder(torch)
    recorder.start()
    model(torch.randn(3, 4)).sum().backward()

    other = threading.Thread(target=recorder.abandon)
    other.start()
    other.join()

    assert function_modes(torch) != []  # it lies on this thread's stack
    model(torch.randn(3, 4))
    assert function_modes(torch) == []
    assert nn.Module.__call__ is CALL


def test_a_function_mode_of_the_job_that_ends_inside_the_recorded_step_is_not_left_on() -> None:
    class Own(TorchFunctionMode):
        pass

    own = Own()
    own.__enter__()
    recorder = Recorder(torch)
    recorder.start()
    own.__exit__(None, None, None)  # pops whatever lies on top: the recorder's
    with pytest.raises(Abstain, match="function modes"):
        recorder.stop()
    assert function_modes(torch) == []


def test_a_function_mode_of_the_job_that_begins_inside_the_recorded_step_stays_on() -> None:
    class Own(TorchFunctionMode):
        pass

    recorder = Recorder(torch)
    recorder.start()
    own = Own()
    own.__enter__()
    with pytest.raises(Abstain, match="function modes"):
        recorder.stop()
    assert function_modes(torch) == [own]
    own.__exit__(None, None, None)


def test_a_boundary_inside_a_torch_function_does_not_leave_the_mode_behind() -> None:
    """Where the end of a backward marks the steps, torch puts the mode back after the boundary."""

    model, recorder = nn.Linear(4, 2), Recorder(torch)
    refusals = []

    class Ends(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            try:
                recorder.stop()
            except Abstain as refusal:
                refusals.append(refusal)
            return grad

    recorder.start()
    Ends.apply(model(torch.randn(3, 4)).sum()).backward()
    assert refusals
    model(torch.randn(3, 4))
    assert function_modes(torch) == []


def test_a_compiled_job_is_refused_before_anything_is_put_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(self: Recorder) -> None:
        raise AssertionError("recording began")

    monkeypatch.setattr(Recorder, "start", touched)
    model = nn.Linear(12, 4)
    model.compile(backend="eager")
    job = Job(torch)
    job.saw_root(model)
    events: list[dict[str, object]] = []
    task = ShadowTask(job, {}, events.append, time.perf_counter_ns)

    assert task.at_boundary(Boundary(job, 1, 0, 1_000_000, 0)) is None

    assert "compiled" in events[-1]["probed"]["why"]  # type: ignore[index]


@pytest.mark.parametrize("ours", [False, True])
def test_what_a_remedy_has_compiled_does_not_make_the_job_a_compiled_one(
    monkeypatch: pytest.MonkeyPatch, ours: bool
) -> None:
    seen = {"stats": Counter(unique_graphs=1), "frames": Counter(total=1)}
    monkeypatch.setattr("torch._dynamo.utils.counters", seen)
    check = CompiledCheck()
    if ours:
        check.forget_ours()  # as when it is undone
    job = Job(torch)
    job.saw_root(nn.Linear(12, 4))
    task = ShadowTask(job, {}, lambda event: None, time.perf_counter_ns, check)
    assert (task.at_boundary(Boundary(job, 1, 0, 1_000_000, 0)) is not None) == ours
    seen["stats"]["unique_graphs"] += 1  # now somebody else compiles
    assert task.at_boundary(Boundary(job, 2, 0, 1_000_000, 0)) is None


def test_dataloader_workers_that_are_forked_inside_the_recorded_step_run_without_the_taps() -> None:
    class Tells(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.tensor([len(function_modes(torch)), int(nn.Module.__call__ is CALL)])

    recorder = Recorder(torch)
    recorder.start()
    told = torch.cat(list(DataLoader(Tells(), batch_size=4, num_workers=1, multiprocessing_context="fork")))
    recorder.abandon()
    assert told.tolist() == [[0, 1]] * 8


def test_random_states_of_python_and_numpy_are_put_back() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.own = nn.Linear(12, 4), random.Random(5)
            self.numbers = numpy.random.default_rng(6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                x = x * (
                    1 + random.random() + self.own.random() + numpy.random.rand() + self.numbers.random()
                )
            return self.linear(x)

    def run(probe: bool) -> tuple[str, object]:
        random.seed(1)
        numpy.random.seed(2)
        model: list[Noisy] = []

        def make() -> Kind:
            model.append(Noisy())
            return supervised(model[0], torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8)))

        outcome = train(make, 40, probe=probe)
        assert not probe or outcome.probed["status"] == "ok", outcome.probed  # type: ignore[index]
        return outcome.fingerprint, (
            random.getstate(),
            model[0].own.getstate(),
            model[0].numbers.bit_generator.state,
        )

    assert run(True) == run(False)


def test_gradients_keep_their_identity() -> None:
    kept: list[bool] = []

    def make() -> Kind:
        kind = mlp()
        inner, model = kind.step, kind.parts[0]
        assert isinstance(model, nn.Module)
        before: dict[int, object] = {}

        def step() -> None:
            for parameter in model.parameters():
                if before:
                    kept.append(parameter.grad is before[id(parameter)])
            inner()
            before.update({id(parameter): parameter.grad for parameter in model.parameters()})

        return Kind(kind.parts, step)

    outcome = train(make, 40, probe=True)
    assert outcome.probed is not None
    assert outcome.probed["status"] == "ok"
    assert kept
    assert all(kept)


def test_a_version_counter_of_a_buffer_is_put_back() -> None:
    """A graph that the loop keeps over the boundary must still accept its backward."""
    model = nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4))
    versions: list[tuple[int, int]] = []

    def make() -> Kind:
        kind = supervised(model, torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8)))
        inner = kind.step
        counted = model[1].num_batches_tracked

        def step() -> None:
            before = counted._version
            inner()
            versions.append((before, counted._version))

        return Kind(kind.parts, step)

    outcome = train(make, 40, probe=True)
    assert outcome.probed is not None
    assert outcome.probed["status"] == "ok"
    assert {after - before for before, after in versions} == {1}
    assert all(later[0] == sooner[1] for sooner, later in itertools.pairwise(versions))


def test_an_exception_in_a_replay_never_reaches_the_loop_and_everything_is_put_back() -> None:
    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = nn.Linear(12, 4), nn.BatchNorm1d(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.norm(self.linear(x))
            if self.training and x.shape[0] != 8:
                raise ValueError("only eight")
            return x

    never = train(trap(Picky), 40, probe=False)
    outcome = train(trap(Picky), 40, probe=True)
    assert outcome.fingerprint == never.fingerprint
    assert outcome.probed is not None
    assert "ValueError: only eight" in str(outcome.probed["why"])


def test_with_override_a_printing_forward_is_probed() -> None:

    outcome = train(trap(Prints), 48, probe=True, params={"override": True, "rounds": 2})
    assert outcome.probed is not None
    assert outcome.probed["status"] == "ok", outcome.probed["why"]


def test_replays_are_spread_over_steps() -> None:
    """With a clock that goes on by 100 us at each look, a replay takes a step or so."""
    unspread = train(mlp, 48, probe=True)
    spread = train(mlp, 1500, probe=True, every=None, clock=Ticks(100_000))
    assert spread.probed is not None
    assert spread.probed["status"] == "ok"
    assert spread.steps_of_probe > 2 * unspread.steps_of_probe


def test_a_dataset_loop_with_workers_is_probed() -> None:
    def make() -> Kind:
        model = nn.Linear(12, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        data = TensorDataset(torch.randn(64, 12), torch.randint(0, 4, (64,)))
        loader = DataLoader(data, batch_size=8, num_workers=1, shuffle=True, persistent_workers=True)
        state = [iter(loader)]

        def step() -> None:
            try:
                inputs, labels = next(state[0])
            except StopIteration:
                state[0] = iter(loader)
                inputs, labels = next(state[0])
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()

        return Kind([model, optimizer], step)

    never = train(make, 40, probe=False)
    outcome = train(make, 40, probe=True)
    assert outcome.fingerprint == never.fingerprint
    assert outcome.probed is not None
    assert outcome.probed["status"] == "ok"


def test_two_ranks_of_ddp_are_probed_through_the_inner_module() -> None:
    told = told_by_two_ranks(_ddp_rank, 20_000 + os.getpid() % 20_000)
    for rank in range(2):
        never, probed = told[rank][:2]
        assert probed == never, rank
    assert told[0][2] == ("ok", None), told
    assert "collective" in told[0][3][1], told


def _ddp_rank(rank: int, port: int, results: object) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    data = torch.randn(4, 8, 12, generator=torch.Generator().manual_seed(rank))

    def make(gathers: bool = False) -> Kind:
        model = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
        wrapped = nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        turn = [0]

        def step() -> None:
            turn[0] += 1
            optimizer.zero_grad()
            out = wrapped(data[turn[0] % 4])
            if gathers:
                everyone = [torch.zeros_like(out) for _ in range(2)]
                torch.distributed.all_gather(everyone, out.detach())
            out.square().mean().backward()
            optimizer.step()

        return Kind([model, optimizer], step)

    plain = train(make, 40, probe=False)
    probed = train(make, 40, probe=rank == 0)  # the other rank knows nothing of it
    gathering = train(lambda: make(True), 40, probe=rank == 0)
    said = [(run.probed["status"], run.probed["why"]) if run.probed else None for run in (probed, gathering)]
    results.put((rank, (plain.fingerprint, probed.fingerprint, *said)))  # type: ignore[attr-defined]
    torch.distributed.destroy_process_group()


def test_however_long_the_recording_takes_the_tape_holds_one_step() -> None:
    # Made-up time passes with every look at the clock: a slice of work outlasts several steps.
    closely, spread = (train(mlp, 1000, probe=True, every=every).probed for every in (1, None))
    assert closely is not None
    assert spread is not None
    assert spread["operations"] == closely["operations"]


class CallsItself(OneLayer):
    """As deep as the stack of Python allows without us."""

    def forward(self, x: torch.Tensor, depth: int = 150) -> torch.Tensor:
        return self(x, depth - 1) if depth else self.linear(x)


def test_a_model_that_calls_itself_has_the_frames_that_it_always_had() -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 150 * 4 + 150)
    try:
        probed = train(trap(CallsItself), 20, probe=True).probed
    finally:
        sys.setrecursionlimit(limit)
    assert probed is not None
    assert "more than 16 deep" in str(probed["why"])
