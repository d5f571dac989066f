"""When a job gets no profiler window: CUPTI would stay in it, or serves another profiler."""

import os
from types import SimpleNamespace

import pytest
import torch.autograd.profiler  # noqa: F401  a window needs it loaded

from autobrrr.agent.measure import profiler_window
from autobrrr.agent.measure.profiler_window import TEARDOWN, WindowTask, cupti_user, why_no_window


def torch_of(cuda: str | None) -> SimpleNamespace:
    return SimpleNamespace(version=SimpleNamespace(cuda=cuda))


@pytest.fixture(autouse=True)
def in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler_window, "cuda_in_use", lambda: True)


@pytest.mark.parametrize(
    ("cuda", "own", "asked", "given"),
    [
        ("12.4", None, False, False),
        ("12.4", None, True, True),
        ("12.4", "1", False, True),
        ("12.6", None, False, True),
        ("13.0", None, False, True),
        ("13.0", "0", False, False),
        (None, None, False, True),
    ],
)
def test_a_window_that_leaves_cupti_in_the_job_is_taken_only_where_the_user_asks(
    cuda: str | None, own: str | None, asked: bool, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TEARDOWN, raising=False)
    if own is not None:
        monkeypatch.setenv(TEARDOWN, own)
    why = why_no_window(torch_of(cuda), asked=asked)
    assert (why is None) == given
    assert given or "--window" in str(why)


def test_beside_another_profiler_no_window_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so")
    assert "CUDA_INJECTION64_PATH is set" in str(why_no_window(torch_of("13.0"), asked=True))
    assert cupti_user({}, "7f00 r-xp /opt/nvidia/nsys/libToolsInjection64.so") is not None
    assert cupti_user({}, "7f00 r-xp /site/nvidia/libcupti.so.12") is None


@pytest.mark.parametrize("for_kernels", [False, True])
def test_cupti_stays_for_a_profiler_of_kernels_that_the_job_switches_on(for_kernels: bool) -> None:
    task = WindowTask(SimpleNamespace(torch=torch_of("13.0")), 3, shapes=False, emit=lambda event: None)
    task._watch.for_kernels = for_kernels
    with task._teardown():
        assert (TEARDOWN in os.environ) is not for_kernels
    assert TEARDOWN not in os.environ
