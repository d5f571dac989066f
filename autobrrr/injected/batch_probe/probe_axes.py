"""Along what a recorded step is replayed at other sizes: its batch, a length, or a width.

The batch is proven on the modules themselves. A length or a width mixes samples' parts, so nothing of it
can be proven: it is read from the inputs' shapes, and modules may refuse it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log2

from ..live_torch.torch_types import Abstain
from .batch_dim import Slicing
from .resize_plan import GUESSES, Guess, ResizePlan, build
from .step_tape import Tape

_LARGEST = 64  # times the batch: further no sweep goes


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One direction in which data can grow.

    `power` is how fast work and memory may grow with it, at most: attention with the square of a
    length, an image with that of its width.
    """

    name: str
    letter: str
    factors: tuple[float, ...]
    power: int = 1
    guesses: tuple[Guess, ...] = GUESSES

    def plan(self, tape: Tape, slicings: Mapping[int, Slicing], guess: Guess) -> ResizePlan:
        """What to run and feed.

        Raises:
            Abstain: the inputs show no such size.
        """
        if self.name == "batch":
            return build(tape, dict(slicings), guess)
        return build(tape, {}, guess, _extent(self, tape, slicings))


_BOTH = (Guess(multiples=False, both=True), Guess(multiples=True, both=True))
BATCH = Axis(name="batch", letter="B", factors=(0.25, 0.5, 1, 2))
SWEEPS: Mapping[str, Axis] = {
    "batch": Axis(
        name="batch",
        letter="B",
        factors=(0.25, 0.5, *(float(1 << power) for power in range(ceil(log2(_LARGEST)) + 1))),
    ),
    "length": Axis(name="length", letter="L", factors=(0.25, 0.5, 1, 2, 4), power=2, guesses=_BOTH),
    "width": Axis(name="width", letter="W", factors=(0.5, 0.75, 1, 1.5, 2), power=2, guesses=_BOTH),
}


def _extent(axis: Axis, tape: Tape, slicings: Mapping[int, Slicing]) -> int:
    """The size along an axis, by the first input that shows one."""
    for index, slicing in slicings.items():
        for number, dim in zip(tape.nodes[index].inputs, slicing.dims, strict=True):
            value = tape.values[number]
            if dim is None or value.stays or value.tensor is None:
                continue
            if str(value.tensor.device).partition(":")[0] != "cpu":
                raise Abstain(f"on a GPU a {axis.name} that the code does not expect can end the job")
            others = [size for at, size in enumerate(value.shape) if at != dim]
            floating = bool(getattr(value.tensor.dtype, "is_floating_point", False))
            size = _size(axis, others, floating=floating)
            if size is None:
                continue
            if size == slicing.size or others.count(size) > (2 if axis.name == "width" else 1):
                raise Abstain(f"the {axis.name} of {size} can't be told from another size of the inputs")
            return size
    raise Abstain(f"no input of the step has a {axis.name}")


def _size(axis: Axis, others: list[int], *, floating: bool) -> int | None:
    """Of one input without its batch: tokens [length], features [length, ...], images [..., width]."""
    if axis.name == "width":
        size = others[-1] if len(others) >= 3 else None
    else:
        size = others[0] if len(others) == (2 if floating else 1) else None
    return size if size is not None and size >= 4 else None
