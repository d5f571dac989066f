"""Signal handlers of the job wait until a guard has put everything back, and lose nothing."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
import torch
from torch import nn

from autobrrr.injected.job_state.held_signals import HeldSignals
from autobrrr.injected.job_state.state_guard import Guarded, StateGuard, unchanged
from autobrrr.injected.live_torch.handler_errors import raised_by_handler
from autobrrr.injected.live_torch.torch_types import Abstain

USED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGTERM)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in USED}
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def send_all(*numbers: int) -> None:
    for number in numbers:
        send(number)


class Preempted(Exception):
    """What a handler of the job's raises."""


def test_what_a_handler_sets_while_a_guard_is_on_is_not_put_back() -> None:
    model = nn.Linear(2, 2)
    model.stop = False  # type: ignore[assignment]

    def stop(*_: object) -> None:
        model.stop = True  # type: ignore[assignment]

    signal.signal(signal.SIGUSR1, stop)
    with StateGuard(torch, Guarded([model], list(model.parameters()))) as guard:  # type: ignore[list-item]
        send(signal.SIGUSR1)
        assert model.stop is False
    assert model.stop is True
    assert guard.changes == []
    assert signal.getsignal(signal.SIGUSR1) is stop


def test_handlers_are_called_in_the_order_of_their_signals_with_a_frame_of_the_jobs() -> None:
    seen: list[tuple[int, FrameType | None]] = []
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, frame: seen.append((number, frame)))
    with HeldSignals(), HeldSignals():
        for number in (signal.SIGUSR2, signal.SIGUSR1, signal.SIGUSR2):
            send(number)
    assert [number for number, _ in seen] == [signal.SIGUSR2, signal.SIGUSR1]
    code = test_handlers_are_called_in_the_order_of_their_signals_with_a_frame_of_the_jobs.__code__
    assert all(frame is not None and frame.f_code is code for _, frame in seen)


@pytest.mark.parametrize("error", [Preempted, SystemExit, KeyboardInterrupt, TimeoutError])
def test_what_a_handler_raises_is_the_jobs_and_the_others_are_called_too(error: type[BaseException]) -> None:
    seen: list[int] = []

    def raises(*_: object) -> None:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        raise error

    signal.signal(signal.SIGUSR1, raises)
    signal.signal(signal.SIGUSR2, lambda *_: seen.append(2))
    with pytest.raises(error) as caught, HeldSignals():
        send_all(signal.SIGUSR1, signal.SIGUSR2)
    assert raised_by_handler(caught.value)
    assert seen == [2]


def test_what_a_handler_raises_is_not_taken_for_a_change_of_state() -> None:
    model = nn.Linear(2, 2)
    model.calls = 0  # type: ignore[assignment]

    def raises(*_: object) -> None:
        raise Preempted

    signal.signal(signal.SIGUSR1, raises)
    guarded = Guarded([model], list(model.parameters()))  # type: ignore[list-item]

    def replay(error: BaseException | None) -> None:
        with unchanged(torch, guarded, trial=True):
            model.calls += 1  # type: ignore[assignment, operator]
            if error is not None:
                raise error
            send(signal.SIGUSR1)

    with pytest.raises(Preempted):
        replay(None)
    assert model.calls == 0
    with pytest.raises(Abstain):
        replay(ValueError("of a forward"))
    with pytest.raises(SystemExit):
        replay(SystemExit())


def test_what_is_raised_within_loses_no_signal() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))

    def interrupted() -> None:
        with HeldSignals():
            send(signal.SIGUSR1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert seen == [1]


def test_a_storm_of_alarms_is_survived_and_none_is_held_for_good() -> None:
    seen: list[int] = []

    def ticks(*_: object) -> None:
        seen.append(1)

    signal.signal(signal.SIGALRM, ticks)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    for _ in range(300):
        before = len(seen)
        with HeldSignals():
            began = len(seen)
            end = time.perf_counter() + 0.001
            while time.perf_counter() < end:
                pass
            assert len(seen) == began
        assert len(seen) > before
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert signal.getsignal(signal.SIGALRM) is ticks


def test_alarms_that_raise_all_reach_the_job_and_no_handler_is_lost() -> None:
    def raises(*_: object) -> None:
        raise Preempted

    def other(*_: object) -> None:
        raise AssertionError

    signal.signal(signal.SIGUSR1, other)
    signal.signal(signal.SIGALRM, raises)
    signal.signal(signal.SIGTERM, other)
    raised = 0
    for number in range(400):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.00002 + number * 2e-6)
            with HeldSignals():
                pass
            time.sleep(0.005)
        except Preempted:
            raised += 1
        assert [signal.getsignal(each) for each in USED[::2]] == [other, raises]
        assert signal.getsignal(signal.SIGTERM) is other
    assert raised == 400


def test_what_c_code_has_set_over_a_handler_stays(tmp_path: Path) -> None:
    seen: list[int] = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    with (tmp_path / "dump").open("w+") as file:
        faulthandler.register(signal.SIGUSR1, file, chain=True)
        try:
            with HeldSignals():
                send(signal.SIGUSR1)
            within = (tmp_path / "dump").read_text().count("most recent call first")
            send(signal.SIGUSR1)
        finally:
            faulthandler.unregister(signal.SIGUSR1)
        assert within >= 1
        assert (tmp_path / "dump").read_text().count("most recent call first") == 2 * within
    assert seen == [1, 1]


def test_a_handler_that_is_set_within_stays() -> None:
    def theirs(*_: object) -> None:
        return None

    signal.signal(signal.SIGUSR1, lambda *_: None)
    with HeldSignals():
        signal.signal(signal.SIGUSR1, theirs)
    assert signal.getsignal(signal.SIGUSR1) is theirs


def nothing(*_: object) -> None:
    return None


def of_torch(*_: object) -> None:
    return None


of_torch.__module__ = "torch.utils.data._utils.signal_handling"


@pytest.mark.parametrize(
    ("handler", "refused"), [(nothing, True), (of_torch, False), (signal.SIG_IGN, False)]
)
def test_on_another_thread_than_the_main_one_a_guard_is_refused_where_the_job_has_handlers(
    handler: Callable[..., None], *, refused: bool
) -> None:
    said: list[object] = []

    def enter() -> None:
        try:
            with HeldSignals():
                said.append("on")
        except Abstain:
            said.append("refused")

    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # of the test runner's
    signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert said == ["refused" if refused else "on"]
