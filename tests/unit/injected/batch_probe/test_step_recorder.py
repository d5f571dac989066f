"""Within a root call of the recorded step no function mode of ours is on; between them it is, as it lay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from autobrrr.injected.batch_probe.step_recorder import Recorder
from autobrrr.injected.live_torch.dispatch_modes import function_modes, own_code_refused
from autobrrr.injected.live_torch.torch_types import Abstain


class Theirs(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return function(*args, **(kwargs or {}))


class Root(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.seen: list[object] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = function_modes(torch)
        return self.inner(x)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder(torch)
    made.start()
    yield made
    made.abandon()
    assert function_modes(torch) == []


def step(root: Root) -> None:
    (root(torch.ones(2, 3)) * 2).sum().backward()


def test_what_the_loop_calls_is_recorded_and_a_root_call_runs_as_ever(recorder: Recorder) -> None:
    root = Root()
    step(root)
    assert root.seen == []
    kinds = [node.kind for node in recorder.stop().nodes]
    assert kinds[-4:] == ["module", "function", "function", "backward"]


def test_a_mode_of_the_jobs_own_stays_where_it_lies(recorder: Recorder) -> None:
    root = Root()
    with Theirs() as theirs:
        step(root)
        assert root.seen == [theirs]
        assert function_modes(torch) == [recorder._mode, theirs]
    assert recorder.stop().nodes


@pytest.mark.parametrize("within", [False, True])
def test_a_profiler_of_the_jobs_own_sees_nothing_of_the_recording(recorder: Recorder, within: bool) -> None:
    profiles: list[torch.autograd.profiler.profile] = []

    class Profiled(Root):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if within:
                profiles[0].__enter__()
            return super().forward(x)

    def profiled() -> list[str]:
        profiles[:] = [torch.autograd.profiler.profile()]
        root = Profiled()
        if not within:
            profiles[0].__enter__()
        step(root)
        profiles[0].__exit__(None, None, None)
        return sorted(event.name for event in profiles[0].function_events)

    found = profiled()
    assert function_modes(torch) == []
    assert recorder.another_may_do
    with pytest.raises(Abstain, match="a profiler of the job's own"):
        recorder.stop()
    assert found == profiled()


def test_a_mode_that_a_root_call_leaves_on_ends_the_recording_not_the_step(recorder: Recorder) -> None:
    with ExitStack() as stack:

        class Enters(Root):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                stack.enter_context(Theirs())
                return super().forward(x)

        step(Enters())
        with pytest.raises(Abstain, match="function modes"):
            recorder.stop()


def test_a_root_call_that_raises_puts_the_mode_back(recorder: Recorder) -> None:
    with pytest.raises(RuntimeError):
        Root()(torch.ones(2, 4))
    assert function_modes(torch) == [recorder._mode]


def test_the_recording_may_end_within_a_root_call(recorder: Recorder) -> None:
    class Ends(Root):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            recorder.abandon()
            return super().forward(x)

    step(Ends())
    assert function_modes(torch) == []
    assert nn.Module.__call__.__name__ == "_wrapped_call_impl"
    assert not hasattr(nn.TransformerEncoder.forward, "__wrapped__")


def test_own_code_is_refused_before_it_runs() -> None:
    class Scaled(torch.Tensor):
        times = 0

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            cls.times += 1
            return super().__torch_function__(function, types, args, kwargs or {})

    x = torch.ones(3).as_subclass(Scaled)
    before = Scaled.times

    def as_a_model_may() -> None:
        torch.ones(3).sum()
        with suppress(Exception):
            x + 1

    with pytest.raises(Abstain, match="of the kind Scaled"), own_code_refused(torch):
        as_a_model_may()
    assert Scaled.times == before
    assert function_modes(torch) == []
