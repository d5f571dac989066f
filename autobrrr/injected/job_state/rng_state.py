"""torch's random states, captured and put back: a graph's recording draws from them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from ..live_torch.graph_capture import capturing

Restore = Callable[[], object]


def capture_of_torch(torch: ModuleType) -> list[Restore]:
    """Functions that put torch's random states back as they are now. About a microsecond each."""
    restores = [_of(torch.default_generator)]
    # In a job's capture of a graph the states of a GPU can't be read.
    if torch.cuda.is_initialized() and not capturing(torch):
        restores += [_of(generator) for generator in torch.cuda.default_generators]
    return restores


def _of(generator: object) -> Restore:
    state = generator.get_state()  # type: ignore[attr-defined]
    return lambda: generator.set_state(state)  # type: ignore[attr-defined]
