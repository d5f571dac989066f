"""A step that is one CUDA graph begins with the replay of that graph."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.loop.step_marks import FallbackMarks


def test_of_two_graphs_in_a_step_the_first_marks_it_before_it_is_replayed() -> None:
    seen: list[str] = []

    class CUDAGraph:
        def __init__(self, name: str) -> None:
            self.name = name

        def replay(self) -> None:
            seen.append(self.name)

    plain = CUDAGraph.__dict__["replay"]
    fake = SimpleNamespace(cuda=SimpleNamespace(CUDAGraph=CUDAGraph))
    scouts = FallbackMarks(fake, Job(torch), lambda source, _: seen.append(source), lambda error: None)  # type: ignore[arg-type]
    scouts.put_on_rest(compiled=True)
    whole, metric = CUDAGraph("whole"), CUDAGraph("metric")
    for _ in range(8):
        whole.replay()
        metric.replay()
    assert seen == ["replay", "whole", "metric"] * 8
    assert scouts.choice() == "replay"
    scouts.keep_only(None)
    assert CUDAGraph.__dict__["replay"] is plain
