"""How the loop is built, read from the live objects by the agent's thread.

In: the job's optimizers, roots and loader. Out: the payload of the event `anatomy`
(`records.Anatomy`). Reads in small portions and lets go of the GIL between them: a model may have
ten thousand parameters, and training must not wait for a count.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from .loop import Loop

PORTION = 64


def read_anatomy(loop: Loop) -> dict[str, object]:
    """The anatomy as far as it is known now; raises RuntimeError where training changes it meanwhile."""
    job = loop.job
    optimizers = job.optimizers
    tensors, elements, size = _count(_parameters(optimizers))
    _, _, state_size = _count(_states(optimizers))
    notes: list[str] = []
    if loop.scripted:
        notes.append("TorchScript modules")
    if loop.steps.relearned:
        notes.append(f"the step pattern changed {loop.steps.relearned} times")
    return {
        "source": loop.steps.source,
        "optimizers": [type(optimizer).__name__ for optimizer in optimizers],
        "parameters": elements if optimizers else None,
        "parameter_tensors": tensors if optimizers else None,
        "parameter_bytes": size if optimizers else None,
        "state_bytes": state_size if optimizers else None,
        "backwards_per_step": loop.phases.backwards if loop.sampled_steps else None,
        "roots": [type(root).__name__ for root in job.roots],
        "compiled": loop.check.compiled(job.roots),
        "loader_workers": loop.loader.workers,
        "loader_prefetch": loop.loader.prefetch,
        "notes": notes,
        "train_tid": loop.train_tid or None,
    }


def _parameters(optimizers: list[object]) -> Iterator[object]:
    for optimizer in optimizers:
        for group in getattr(optimizer, "param_groups", ()):
            yield from group["params"]


def _states(optimizers: list[object]) -> Iterator[object]:
    for optimizer in optimizers:
        for state in list(getattr(optimizer, "state", {}).values()):
            values = state.values() if isinstance(state, dict) else ()
            for value in list(values):
                yield from value if isinstance(value, list) else (value,)


def _count(things: Iterable[object]) -> tuple[int, int, int]:
    tensors = elements = size = 0
    for thing in things:
        count = getattr(thing, "numel", None)
        width = getattr(thing, "element_size", None)
        if count is None or width is None:
            continue
        tensors += 1
        elements += int(count())
        size += int(count()) * int(width())
        if tensors % PORTION == 0:
            time.sleep(0.0005)
    return tensors, elements, size
