"""What a recorded size is at another batch size.

Only data of the batch grows, and what descends from it. Sizes that an operator takes as numbers follow the
tensors whose sizes they were. Where a number may or may not count samples, the choice is a guess that can be
turned round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

Shape = tuple[int, ...]
VIEWS = frozenset(f"aten::{name}" for name in ("view", "_unsafe_view", "reshape", "_reshape_alias"))
SIZES = frozenset(("size", "sizes", "shape", "input_size", "input_sizes", "self_sizes", "split_sizes"))
COUNTS = {"aten::randperm": "n", "aten::eye": "n", "aten::split": "split_size"}


class Sizes:
    """Sizes at `width` samples of a step that was recorded with `batch`."""

    def __init__(self, batch: int, width: int) -> None:
        self.batch, self.width = batch, width
        self._seen: dict[Shape, dict[Shape, int]] = {}

    def saw(self, before: Shape, now: Shape) -> None:
        """A tensor of the step has this shape now."""
        counts = self._seen.setdefault(before, {})
        counts[now] = counts.get(now, 0) + 1

    def like(self, shape: Shape) -> Shape:
        """Of a tensor whose maker failed: as most that had its shape."""
        seen = self._seen.get(shape)
        return max(seen, key=lambda now: seen[now]) if seen else self.grown(shape)[0]

    def grown(self, shape: Sequence[int]) -> list[Shape]:
        """Of new data: what is most likely, then what else it may be."""
        exact = [at for at, size in enumerate(shape) if size == self.batch]
        folded = [at for at, size in enumerate(shape) if size > self.batch and size % self.batch == 0]
        plain = tuple(shape)
        grown = [
            (*plain[:at], size * self.width // self.batch, *plain[at + 1 :])
            for at, size in ((at, shape[at]) for at in (*exact, *folded))
        ]
        return list(dict.fromkeys((*grown[: len(exact)], plain, *grown[len(exact) :])))

    def made(self, shape: Sequence[int]) -> list[Shape]:
        """Sizes of a new tensor: as another that had them, else as data of the batch."""
        seen = self._seen.get(tuple(shape), {})
        return list(dict.fromkeys((*sorted(seen, key=lambda now: -seen[now]), *self.grown(shape))))

    def viewed(self, shape: Sequence[int], before: Shape, now: Shape) -> Shape:
        """Sizes for a view of a tensor that had one shape and has another now."""
        known = prod(size for size in shape if size != -1)
        found = [size if size != -1 else prod(before) // max(1, known) for size in shape]
        for sources, targets in _groups(before, found):
            had, has = prod(before[at] for at in sources), prod(now[at] for at in sources)
            if had == has or not had:
                continue
            likely = sorted(
                (at for at in targets if found[at] * has % had == 0),
                key=lambda at: (found[at] != self.batch, found[at] % self.batch != 0, found[at] == 1),
            )
            if likely:
                found[likely[0]] = found[likely[0]] * has // had
        return tuple(found)

    def expanded(self, shape: Sequence[int], before: Shape, now: Shape) -> list[Shape]:
        """Sizes for an expansion."""
        lead = len(shape) - len(before)
        fixed = [at >= lead and before[at - lead] != 1 for at in range(len(shape))]
        kept = tuple(now[at - lead] if fixed[at] and size != -1 else size for at, size in enumerate(shape))
        free = [at for at, size in enumerate(shape) if size == self.batch and not fixed[at]]
        if not free:
            return [kept]
        grown = [(*kept[:at], self.width, *kept[at + 1 :]) for at in free]
        return [kept, *grown] if before != now else [*grown, kept]

    def part(self, number: int, size: int, now: int) -> int:
        """A place along a dimension that had one size and has another now."""
        return number if size == now or not 0 < number <= size else round(number * now / size)


def _groups(before: Shape, after: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Dimensions of two shapes with as many elements each, by runs whose products agree."""
    at = to = 0
    while at < len(before) or to < len(after):
        sources, targets = [at] if at < len(before) else [], [to] if to < len(after) else []
        left = before[at] if sources else 1
        right = after[to] if targets else 1
        at, to = at + len(sources), to + len(targets)
        while left != right and (at < len(before) or to < len(after)):
            if (left < right and at < len(before)) or to >= len(after):
                left *= before[at]
                sources.append(at)
                at += 1
            else:
                right *= after[to]
                targets.append(to)
                to += 1
        yield sources, targets
