"""An error within our code ends there; one raised there by a handler of a signal reaches the job."""

import signal
from collections.abc import Iterator

import pytest

from autobrrr.agent.phases.batch_shapes import batch_size


@pytest.fixture
def handled() -> Iterator[None]:
    def handler(*_: object) -> None:
        raise TimeoutError("of the job")

    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)


class Odd:
    """An array whose shape can't be read; a signal comes while we try."""

    __module__ = "torch.odd"

    def __init__(self, *, signalled: bool) -> None:
        self._signalled = signalled

    @property
    def shape(self) -> tuple[int, ...]:
        if self._signalled:
            signal.raise_signal(signal.SIGUSR1)
        raise RuntimeError("no shape")


@pytest.mark.usefixtures("handled")
def test_only_what_a_handler_raised_leaves_a_guard() -> None:
    assert batch_size([Odd(signalled=False)]) == -1
    with pytest.raises(TimeoutError, match="of the job"):
        batch_size([Odd(signalled=True)])
