"""CUDA graphs on the emulated device: captured once, replayed as one entry of the queue."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from autobrrr.agent.live_torch.graph_capture import capturing, watch_captures
from autobrrr.agent.live_torch.patches import take_off_all


def test_the_agent_sees_a_capture_of_another_thread_that_it_watches(device) -> None:
    original = torch.cuda.CUDAGraph.capture_begin
    watch = watch_captures(torch)
    seen = []
    with torch.cuda.graph(torch.cuda.CUDAGraph()), ThreadPoolExecutor(1) as pool:
        seen.append(pool.submit(capturing, torch).result())
    with pytest.raises(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.cuda.synchronize()
    assert take_off_all(watch) == []
    assert (seen, capturing(torch)) == ([True], False)
    assert torch.cuda.CUDAGraph.capture_begin is original
