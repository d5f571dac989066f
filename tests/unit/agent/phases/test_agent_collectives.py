"""Collectives that the loop calls are counted and timed on its own thread alone, and left as they were."""

import sys
import threading
import time
import types
from collections.abc import Iterator

import pytest

from autobrrr.agent.measure.collective_waits import CollectiveCalls
from autobrrr.agent.phases.phase_clock import FORWARD, NAMES, PhaseClock
from support.agent import fail


class Work:
    def wait(self, timeout: float = 0.0) -> str:
        time.sleep(0)
        return f"waited {timeout}"


class ProcessGroup:
    def allreduce(self, tensors: list[int], opts: object = None) -> Work:
        if not tensors:
            raise ValueError("no tensors")
        return Work()

    def barrier(self) -> str:
        return self.allreduce([0]).wait(1.0)  # what a collective is made of is not counted again

    def size(self) -> int:
        return 2


def share_buffers(process_group: object, tensors: list[int], *, src: int = 0) -> int:
    return len(tensors) + src


BEFORE = {cls: dict(vars(cls)) for cls in (Work, ProcessGroup)}


@pytest.fixture
def phases() -> PhaseClock:
    return PhaseClock()


@pytest.fixture
def calls(phases: PhaseClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[CollectiveCalls]:
    bindings = types.ModuleType("torch._C._distributed_c10d")
    bindings.ProcessGroup, bindings.Work = ProcessGroup, Work  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, bindings.__name__, bindings)
    distributed = types.ModuleType("torch.distributed")
    distributed._broadcast_coalesced = share_buffers  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, distributed.__name__, distributed)
    found = CollectiveCalls(phases, threading.get_ident(), fail)
    found.put_on()
    yield found
    assert found.take_off() == []
    assert distributed._broadcast_coalesced is share_buffers  # type: ignore[attr-defined]
    for cls, before in BEFORE.items():
        assert dict(vars(cls)) == before


def test_calls_and_waits_are_timed_and_calls_counted(calls: CollectiveCalls) -> None:
    group = ProcessGroup()
    assert group.allreduce([1]).wait(timeout=3.0) == "waited 3.0"
    pending = [group.allreduce([each], opts=None) for each in (1, 2)]
    for work in pending:
        work.wait()
    assert group.size() == 2
    found = calls.take()
    assert found.calls == 3
    assert found.by_phase_ns.total() > 0
    assert calls.take() == (0, {})


def test_the_wait_for_the_buffers_of_rank_0_is_timed_and_is_no_call_of_the_loop(
    calls: CollectiveCalls, phases: PhaseClock
) -> None:
    phases.on = True
    phases.begin(0)
    phases.root_enter(1, 1, grad=True)
    shares = vars(sys.modules["torch.distributed"])["_broadcast_coalesced"]
    assert shares(None, [1, 2], src=3) == shares(process_group=None, tensors=[1, 2], src=3) == 5
    found = calls.take()
    assert found.calls == 0
    assert list(found.by_phase_ns) == [NAMES[FORWARD]]
    with pytest.raises(TypeError):
        shares()
