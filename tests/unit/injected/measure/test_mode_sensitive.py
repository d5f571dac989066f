"""What a job calls is learnt from plain steps, and what torch computes another way under a mode is known."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest
import torch
from torch.autograd import profiler_legacy

from autobrrr.injected.job_state.operator_log import OperatorLog
from autobrrr.injected.live_torch.torch_types import Abstain
from autobrrr.injected.measure import dispatch_timer
from autobrrr.injected.measure.mode_sensitive import FEWEST_STEPS, LOG_NS, MOST_STEPS, SensitiveCalls

Work = Callable[[torch.Tensor], torch.Tensor | tuple[torch.Tensor, ...]]
# fmt: off
OTHERWISE: dict[str, Work] = {
    "aten::prod": lambda x: x.prod(-1),
    "aten::masked_fill": lambda x: x.masked_fill(x > 0.5, x.detach().sum().requires_grad_()),
    "aten::max": lambda x: x.max(),
    "aten::min": lambda x: x.min(),
    "aten::median": lambda x: x.median(),
    "aten::nanmedian": lambda x: x.nanmedian(),
    "aten::linalg_eigvalsh": lambda x: torch.linalg.eigvalsh(x.detach()),
    "aten::linalg_svdvals": lambda x: torch.linalg.cond(x.detach()),
}
AT_ONCE: dict[str, Work] = {  # not to be told from others by what they dispatch
    "a batch by a single matrix": lambda x: x.expand(3, 4, 4) @ x.detach()[None],
    "aten::_conj": lambda x: (torch.complex(x, x) @ torch.complex(x, x).conj()).abs(),
}
ALIKE: dict[str, Work] = {
    "prod without a gradient": lambda x: x.detach().prod(-1),
    "a number as the value": lambda x: x.masked_fill(x > 0.5, 0.0),
    "the largest of each row": lambda x: x.max(-1).values,
    "vectors too": lambda x: torch.linalg.svd(x.detach())[1],
    "a norm": lambda x: x.norm(),
    "a batch by a matrix": lambda x: x.expand(3, 4, 4) @ x.detach(),
    "a batch by a batch": lambda x: x.expand(3, 4, 4) @ x.detach().expand(3, 4, 4),
    "one by one": lambda x: x[None] @ x.detach()[None],
}
# fmt: on


def run(work: Work) -> None:
    out = work(torch.rand(4, 4, requires_grad=True))
    if isinstance(out, torch.Tensor) and out.requires_grad:
        out.sum().backward()


def learnt(work: Work) -> SensitiveCalls:
    calls = SensitiveCalls(torch)
    calls.begin_step()
    run(work)
    calls.end_step()
    return calls


@pytest.mark.parametrize("name", [*OTHERWISE, *AT_ONCE])
def test_what_torch_computes_another_way_is_refused(name: str) -> None:
    with pytest.raises(Abstain, match=name):
        learnt({**OTHERWISE, **AT_ONCE}[name]).check()


@pytest.mark.parametrize("name", ALIKE)
def test_what_it_computes_alike_is_not(name: str) -> None:
    calls = learnt(ALIKE[name])
    calls.check()
    assert operators_of(ALIKE[name])
    calls.check(operators_of(ALIKE[name]))


def operators_of(work: Work) -> list[object]:
    mode = dispatch_timer.enter(torch, None)
    try:
        run(work)
    finally:
        mode.__exit__(None, None, None)
    return mode.ops


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_comes_for_the_first_time_in_a_traced_step_is_noticed(name: str) -> None:
    with pytest.raises(Abstain, match="another way"):
        learnt(lambda x: x + 1).check(operators_of(OTHERWISE[name]))


def test_more_steps_are_logged_than_the_fewest_where_they_are_short() -> None:
    calls = SensitiveCalls(torch)
    assert not calls.enough(long=True)
    for _ in range(FEWEST_STEPS):
        calls.begin_step()
        calls.end_step()
    assert calls.enough(long=False) == (calls._logged_ns > LOG_NS)
    for _ in range(MOST_STEPS - FEWEST_STEPS):
        calls.begin_step()
        calls.end_step()
    assert calls.enough(long=False)


def test_a_log_changes_no_bit() -> None:
    def gradient() -> torch.Tensor:
        torch.manual_seed(3)
        x = torch.rand(16, 8, requires_grad=True)
        (-x.prod(-1).sum() - x.max()).backward()
        assert x.grad is not None
        return x.grad.view(torch.int32)

    plain = gradient()
    log = OperatorLog(torch)
    assert log.start()
    logged = gradient()
    found = log.stop()
    assert found is not None
    assert torch.equal(plain, logged)
    assert found.whole
    assert {"ProdBackward1", "aten::prod", "MaxBackward1"} <= found.names


def test_only_its_own_thread_ends_a_log() -> None:
    log = OperatorLog(torch)
    assert log.start()
    seen: list[object] = []
    other = threading.Thread(target=lambda: seen.append(log.stop()))
    other.start()
    other.join()
    assert seen == [None]
    assert log.on
    assert log.stop() is not None
    assert not torch.autograd._profiler_enabled()  # type: ignore[attr-defined]


@pytest.mark.parametrize("profile", [torch.profiler.profile, profiler_legacy.profile])
def test_a_profiler_of_the_jobs_own_is_given_way_to(profile: Callable[[], object]) -> None:
    log = OperatorLog(torch)
    assert log.start()
    torch.ones(3).sum()
    with profile():  # type: ignore[attr-defined]
        assert not log.on
        assert not OperatorLog(torch).start()
        torch.ones(3).prod()
    found = log.stop()
    assert found is not None
    assert not found.whole
    assert "aten::sum" in found.names
    assert "aten::prod" not in found.names


def test_a_child_does_not_log_on() -> None:
    log = OperatorLog(torch)
    assert log.start()
    child = os.fork()
    if not child:
        os._exit(int(torch.autograd._profiler_enabled()))  # type: ignore[attr-defined]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    found = log.stop()
    assert found is not None
    assert not found.whole


def test_a_torch_without_that_profiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C._autograd, "_enable_profiler_legacy")
    with pytest.raises(Abstain, match="can't be learnt"):
        SensitiveCalls(torch).begin_step()
