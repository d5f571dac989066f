"""What several unit tests use."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from autobrrr.agent.loop.train_loop import TrainLoop
from autobrrr.agent.remedies.active_remedies import ActiveRemedies
from autobrrr.agent.wire.ring_writer import StepRing
from support import examples
from support.machines.fake_proc import FakeProc

examples.load()


@pytest.fixture(autouse=True, scope="module")
def collected() -> Iterator[None]:
    """Sessions and their clients are cycles, whose sockets a test leaves to the collector."""
    yield
    gc.collect()
    gc.freeze()  # what a module has imported is not walked again after each module that follows


@pytest.fixture
def loop() -> Iterator[TrainLoop]:
    """A loop that is on, without remedies or an agent; taken off afterwards."""
    import torch  # whoever only hands out tests does without

    pages = StepRing()
    pages.close_fd()
    made = TrainLoop(torch, pages, ActiveRemedies({}), lambda event: None)
    made.put_on(lambda: None)
    yield made
    if not made.gone:
        made.close_door()
        made.take_down(keep=False, at_boundary=False)
    pages.release()


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    """A made-up /proc without a process."""
    return FakeProc(tmp_path)
