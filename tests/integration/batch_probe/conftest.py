"""A probe leaves torch as it was, whatever became of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from autobrrr.injected.batch_probe.step_recorder import function_modes

CALL = nn.Module.__call__


@pytest.fixture(autouse=True)
def nothing_of_a_probe_stays(one_thread: None) -> Iterator[None]:
    yield
    assert nn.Module.__call__ is CALL
    assert function_modes(torch) == []
