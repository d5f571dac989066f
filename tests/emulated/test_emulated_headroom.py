"""A remedy that takes memory of the device is refused where it is not there, or a graph is being captured."""

import pytest
import torch

from autobrrr.agent.remedies.active_remedies import ActiveRemedies
from autobrrr.agent.remedies.device_headroom import one_more_pool, parameter_bytes, step_bytes
from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import RefusalCode, Refused, Remedy
from support.agent.remedies import training

pytestmark = pytest.mark.usefixtures("device")
GIB = 1 << 30
POOL = Remedy(
    "pool",
    treats=("overhead",),
    reach="live",
    cls="bitwise",
    doc="Graphs in memory of their own.",
    takes=one_more_pool,
)


def test_a_full_device_refuses_what_takes_memory_and_takes_what_needs_none() -> None:
    loop = training(device="cuda")
    remedies = ActiveRemedies({**REGISTRY, "pool": POOL})
    assert parameter_bytes(loop.job) == sum(4 * each.numel() for each in loop.model.parameters())
    free, _ = torch.cuda.mem_get_info()
    peak = torch.empty(3 * GIB, dtype=torch.uint8, device="cuda")  # what a step of a large model takes
    del peak
    torch.cuda.empty_cache()
    held = torch.empty(free - 4 * GIB, dtype=torch.uint8, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    peak = torch.empty(3 * GIB, dtype=torch.uint8, device="cuda")
    del peak
    try:
        with pytest.raises(Refused, match="MiB of the device's memory"):
            remedies.apply(loop.job, "pool", {})
        remedies.undo(remedies.apply(loop.job, "optimizer.fused", {}))
    finally:
        del held
        torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    remedies.undo(remedies.apply(loop.job, "pool", {}))


def test_a_peak_that_the_job_has_given_back_is_no_step_s() -> None:
    """As of loading a checkpoint; a step's own peak stays with the allocator."""
    loop = training(device="cuda")
    loop.train(1)
    torch.cuda.reset_peak_memory_stats()
    usual = step_bytes(loop.job)
    loaded = torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")
    del loaded
    assert step_bytes(loop.job) >= 2 * GIB
    torch.cuda.empty_cache()
    assert usual <= step_bytes(loop.job) < GIB


def test_nothing_is_switched_while_the_job_captures_a_graph() -> None:
    loop = training(device="cuda")
    x, graph, remedies = torch.zeros(8, device="cuda"), torch.cuda.CUDAGraph(), ActiveRemedies(REGISTRY)
    with torch.cuda.graph(graph):
        x.add_(1)
        with pytest.raises(Refused, match="captures") as refused:
            remedies.apply(loop.job, "optimizer.fused", {})
    assert refused.value.code is RefusalCode.NOT_MET
    graph.replay()
    remedies.undo(remedies.apply(loop.job, "optimizer.fused", {}))
