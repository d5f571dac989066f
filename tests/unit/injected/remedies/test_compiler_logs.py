"""What torch logs while we compile reaches no handler; what anybody else logs does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest
import torch

from autobrrr.injected.remedies.model_calls.dynamo_footprint import Footprint
from autobrrr.injected.remedies.model_calls.rehearsal import settings_in_force

LOGGERS = ("torch._dynamo.convert_frame", "torch._inductor", "torch", "torchvision", "job")


class Kept(logging.Handler):
    """Keeps the loggers' names."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.names.append(record.name)


@pytest.fixture(params=["", "torch", "torch._dynamo"])
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    """On the root logger, and where torch has handlers of its own."""
    handler, logger = Kept(), logging.getLogger(request.param)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def logged(kept: Kept) -> list[str]:
    kept.names.clear()
    for name in LOGGERS:
        logging.getLogger(name).error("recompile limit")
    return list(kept.names)


def test_nothing_of_torch_is_handled_while_we_compile(kept: Kept) -> None:
    before = logged(kept)
    with Footprint(torch):
        within = logged(kept)
        thread = threading.Thread(target=logged, args=(kept,))
        thread.start()
        thread.join()
        on_another_thread = list(kept.names)
    assert before
    assert within == [name for name in before if name in ("torchvision", "job")]
    assert on_another_thread == before == logged(kept)
    assert kept.filters == []


def test_settings_that_are_no_config_are_put_back() -> None:
    place = "torch._inductor.select_algorithm"
    (setting,) = settings_in_force([(place, "PRINT_AUTOTUNE", False)])
    from torch._inductor import select_algorithm

    before = select_algorithm.PRINT_AUTOTUNE
    with setting:
        assert select_algorithm.PRINT_AUTOTUNE is False
    assert select_algorithm.PRINT_AUTOTUNE is before is True
