"""The logs of torch's profiler and recorder are quiet around ours, and as they were afterwards."""

import pytest
import torch

from autobrrr.agent.live_torch.torch_log import PROFILER, RECORDER, LogLevel, level_of, quiet


@pytest.mark.parametrize("kind", [PROFILER, RECORDER])
def test_nothing_is_told_within_and_the_level_is_put_back(kind: LogLevel) -> None:
    level = level_of(torch, kind)
    before = level.value
    with quiet(torch, kind):
        assert level.value == kind.nothing != before
    assert level.value == before
    try:
        with quiet(torch, kind):
            level.value = before + 1
        assert level.value == before + 1  # it was set within
    finally:
        level.value = before
