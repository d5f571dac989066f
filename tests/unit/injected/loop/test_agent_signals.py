"""What a handler of the job's has raised, told from what our own work raises."""

from __future__ import annotations

import enum
import functools
import signal
import types
from collections.abc import Callable, Iterator

import pytest

from autobrrr.injected.audit import tensor_digests
from autobrrr.injected.live_torch.handler_errors import raised_by_handler
from autobrrr.injected.phases.loss_value import DeviceLoss, loss_finite
from support.simulated.bare_torch import bare_torch


class Preempted(Exception):
    """What a job raises to save a checkpoint."""


class Handles:
    def __call__(self, *_: object) -> None:
        raise Preempted


class Color(enum.Enum):
    RED = 1


def by_function(*_: object) -> None:
    raise Preempted


def of_a_usual_kind(*_: object) -> None:
    raise RuntimeError("half of the time is over")


class Tensor:
    """A loss, or a file that is asked for its number: a signal comes as it is read."""

    is_cuda = True

    def __getattr__(self, name: str) -> object:
        signal.raise_signal(signal.SIGUSR1)
        return 1

    def fileno(self) -> int:
        signal.raise_signal(signal.SIGUSR1)
        return 3


@pytest.fixture
def handled() -> Iterator[Callable[[object], None]]:
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: void(signal.signal(signal.SIGUSR1, handler))  # type: ignore[arg-type]
    signal.signal(signal.SIGUSR1, before)


def void(_: object) -> None: ...


def raised(work: Callable[[], object]) -> BaseException:
    try:
        work()
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError("it raised nothing")


@pytest.mark.parametrize("handler", [by_function, Handles()])
def test_what_a_python_handler_raises_is_the_jobs(handler: object, handled: Callable[[object], None]) -> None:
    handled(handler)
    assert raised_by_handler(raised(lambda: signal.raise_signal(signal.SIGUSR1)))
    assert not raised_by_handler(raised(lambda: 1 / 0))


@pytest.mark.parametrize("default", [signal.SIG_DFL, signal.SIG_IGN])
def test_an_unknown_member_of_an_enum_comes_from_no_handler(
    default: object, handled: Callable[[object], None]
) -> None:
    handled(default)  # itself a member of one
    assert not raised_by_handler(raised(lambda: Color("blue")))


def test_behind_a_handler_without_frames_only_an_end_of_the_process_is_the_jobs(
    handled: Callable[[object], None],
) -> None:
    handled(set().add)
    assert raised_by_handler(SystemExit(0))
    assert not raised_by_handler(ValueError("ours"))


@pytest.mark.parametrize(
    "reads",
    [
        loss_finite,
        DeviceLoss(bare_torch()).finite,
        functools.partial(tensor_digests.bits, types.ModuleType("torch")),
        functools.partial(tensor_digests.rows, types.ModuleType("torch")),
    ],
)
def test_what_comes_while_a_value_is_read_is_no_trouble_of_the_value(
    reads: Callable[[object], object], handled: Callable[[object], None]
) -> None:
    handled(of_a_usual_kind)
    with pytest.raises(RuntimeError, match="half of the time"):
        reads(Tensor())
