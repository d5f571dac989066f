"""Every random state that a replay could advance, captured and put back."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import ModuleType

from ..job_code.installed_code import home_of
from ..live_torch.graph_capture import capturing

Restore = Callable[[], object]


def capture(torch: ModuleType, generators: list[object]) -> list[Restore]:
    """What to call to put the random states back as they are now.

    Args:
        generators: Generators of the user's own: of torch, Python or NumPy.
    """
    restores = [*capture_of_torch(torch), _python(random)]
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        state = numpy.random.get_state()
        restores.append(lambda: numpy.random.set_state(state))
    for generator in generators:
        if isinstance(generator, torch.Generator):
            restores.append(_of(generator))
        elif isinstance(generator, random.Random):
            restores.append(_python(generator))
        else:
            restores.append(_numpy(generator))
    return restores


def capture_of_torch(torch: ModuleType) -> list[Restore]:
    """The same for torch's own alone: in about a microsecond each."""
    restores = [_of(torch.default_generator)]
    # In a job's capture of a graph the states of a GPU can't be read.
    if torch.cuda.is_initialized() and not capturing(torch):
        restores += [_of(generator) for generator in torch.cuda.default_generators]
    return restores


def states(torch: ModuleType) -> tuple[object, ...]:
    """torch's, Python's and numpy's, to be compared by `drew`; None: there is no such generator yet."""
    numpy = sys.modules.get("numpy.random")
    known: object = None
    if numpy is not None:
        kind, keys, *rest = numpy.get_state()
        known = kind, bytes(keys), *rest
    return bytes(torch.get_rng_state().numpy()), random.getstate(), known


def drew(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    """Whether a generator moved on; one that was not there before can't be told to have."""
    return any(old is not None and old != new for old, new in zip(before, now, strict=True))


def is_generator(thing: object, torch: ModuleType) -> bool:
    """Whether a thing is a random generator whose state can be captured."""
    if isinstance(thing, (torch.Generator, random.Random)):
        return True
    kind = type(thing)
    return home_of(kind).startswith("numpy.random") and kind.__name__ in ("Generator", "RandomState")


def _of(generator: object) -> Restore:
    state = generator.get_state()  # type: ignore[attr-defined]
    return lambda: generator.set_state(state)  # type: ignore[attr-defined]


def _python(source: object) -> Restore:
    state = source.getstate()  # type: ignore[attr-defined]
    return lambda: source.setstate(state)  # type: ignore[attr-defined]


def _numpy(generator: object) -> Restore:
    if hasattr(generator, "bit_generator"):
        state = generator.bit_generator.state

        def restore() -> None:
            generator.bit_generator.state = state

        return restore
    return _of(generator)
