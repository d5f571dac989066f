"""How the loop is built, read from the live objects by the agent's thread.

In: the job's optimizers, roots and loader. Out: the payload of the event `anatomy`
(`records.Anatomy`). Reads in small portions and lets go of the GIL between them: a model may have
ten thousand parameters, and training must not wait for a count.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from types import CodeType, ModuleType

from .live_torch.dispatch_modes import unseen
from .loop.train_loop import TrainLoop
from .measure.code_sites import attention_in, is_own
from .measure.stack_sampler import foreign_folders
from .wire import ring_layout

PORTION = 64
EVEN = 8  # sides that are no multiple of it keep tensor cores from their full rate
LARGE = 1 << 18  # elements of a weight whose shape is worth a word
MOST_NAMED = 4


def read_anatomy(loop: TrainLoop) -> dict[str, object]:
    """The anatomy as far as it is known now; raises RuntimeError where training changes it meanwhile."""
    with unseen():
        job = loop.job
        optimizers = job.optimizers
        tensors, elements, size = _count(job.updated)
        _, _, state_size = _count(_states(optimizers))
        return {
            "source": loop.steps.source,
            "optimizers": [type(optimizer).__name__ for optimizer in optimizers],
            "parameters": elements if optimizers else None,
            "parameter_tensors": tensors if optimizers else None,
            "parameter_bytes": size if optimizers else None,
            "state_bytes": state_size if optimizers else None,
            "model_bytes": _count(_weights(job.roots))[2] if job.roots else None,
            "backwards_per_step": loop.last_sample[ring_layout.BACKWARDS] if loop.last_sample else None,
            "calls_per_step": loop.quiet.usual,
            "roots": [type(root).__name__ for root in job.roots],
            "compiled": loop.check.compiled(job.roots),
            "loader_workers": loop.loader.workers,
            "loader_prefetch": loop.loader.prefetch,
            "notes": ["TorchScript modules"] if loop.roots.scripted else [],
            "train_tid": loop.train_tid or None,
            "attention": attention_in(_forwards(job.roots, foreign_folders(job.torch))),
            "uneven": _uneven(job.roots),
            "gpu_uuids": _gpu_uuids(job.torch, job.updated),
        }


def _gpu_uuids(torch: ModuleType, parameters: Iterable[object]) -> list[str]:
    """CUDA devices with parameters, the one with most of them first, as the driver knows them everywhere.

    Their numbers are not the driver's: CUDA_VISIBLE_DEVICES and the order of speed change them.
    """
    held: dict[object, int] = {}
    for parameter in parameters:
        device = getattr(parameter, "device", None)
        if getattr(device, "type", None) == "cuda":
            held[device] = held.get(device, 0) + int(parameter.numel())  # type: ignore[attr-defined]
    found = []
    for device in sorted(held, key=lambda device: -held[device]):
        uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)  # since torch 2.4
        if uuid is not None:
            found.append(str(uuid))
    return found


def _forwards(roots: list[object], foreign: tuple[str, ...]) -> list[CodeType]:
    """The forwards of the user's own module classes, each once."""
    found: dict[type, CodeType | None] = {}
    for part in _parts(roots):
        kind = type(part)
        if kind not in found:
            code = getattr(getattr(kind, "forward", None), "__code__", None)
            found[kind] = code if isinstance(code, CodeType) and is_own(code, foreign) else None
    return [code for code in dict.fromkeys(found.values()) if code is not None]


def _uneven(roots: list[object]) -> list[str]:
    """Large matrices with a side that is no multiple of 8: "head.weight 50257x768"."""
    found: list[str] = []
    seen: set[int] = set()
    for part in _parts(roots):
        for name, weight in list(getattr(part, "_parameters", {}).items()):
            shape = tuple(getattr(weight, "shape", ()))
            if len(shape) != 2 or id(weight) in seen or shape[0] * shape[1] < LARGE:
                continue
            seen.add(id(weight))
            if any(side % EVEN for side in shape) and len(found) < MOST_NAMED:
                found.append(f"{type(part).__name__}.{name} {shape[0]}x{shape[1]}")
    return found


def _parts(roots: list[object]) -> Iterator[object]:
    """All modules below these, a portion at a time."""
    waiting = list(roots)
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if len(seen) % PORTION == 0:
            time.sleep(0.0005)
        yield part
        waiting += [each for each in list(getattr(part, "_modules", {}).values()) if each is not None]


def _weights(roots: list[object]) -> Iterator[object]:
    """Parameters and buffers of these and of all modules below, each once."""
    seen: set[int] = set()
    for part in _parts(roots):
        for kind in ("_parameters", "_buffers"):
            found = {id(each): each for each in list(getattr(part, kind, {}).values())}
            yield from (each for key, each in found.items() if key not in seen)
            seen |= found.keys()


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
