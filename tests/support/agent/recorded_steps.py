"""A recorded step, as `step_recorder` makes it in a job: here by the test itself."""

import gc
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from autobrrr.agent.measure.step_recorder import remove_observer
from autobrrr.agent.wire.recording import STATE, WEIGHTS


def recorded(
    step: Callable[[], object], weights: Sequence[torch.Tensor], folder: Path, batch: int
) -> dict[str, Any]:
    """The recording of a step that has run before; every operator took as long as any other."""
    for _ in range(2):
        step()
    path = folder / "trace.json"
    remove_observer(torch)  # of a test before, whose step was recorded here
    observer = torch.profiler.ExecutionTraceObserver()
    observer.register_callback(str(path))
    observer.start()
    for name, tensors in ((WEIGHTS, weights), (STATE, _state(weights))):
        with torch.autograd.profiler.record_function(name):
            for tensor in tensors:
                tensor.detach()
    step()
    observer.stop()
    observer.unregister_callback()
    trace = json.loads(path.read_text())
    nodes = sorted(trace["nodes"], key=lambda node: int(node["id"]))
    nodes = [node for node in nodes if node["id"] != node["ctrl_deps"]]
    names, ours = [node["name"] for node in nodes], set[int]()
    for node in nodes:
        if node["name"] in (WEIGHTS, STATE) or node["ctrl_deps"] in ours:
            ours.add(node["id"])
    first = max(at for at, node in enumerate(nodes) if node["id"] in ours) + 1
    return {
        "trace": trace,
        "timed": [(1_000 * len(names), [(name, 1_000, 900, "forward", 0) for name in names[first:]], 0)] * 3,
        "batch": batch,
        "threads": 1,
        "probe": True,
        "sweep": None,
        "step_ns": 1_000 * len(names),
        "free_bytes": 1 << 30,
        "device": "",
        "paths": [],
    }


def _state(weights: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors of the optimizers that update these weights, and their gradients."""
    optimizers = [each for each in gc.get_objects() if isinstance(each, torch.optim.Optimizer)]
    states = [each.state[weight] for each in optimizers for weight in weights if weight in each.state]
    kept = [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]
    return [*kept, *(weight.grad for weight in weights if weight.grad is not None)]
