"""What a recorded size is at another batch size.

Only data of the batch grows, and what descends from it. Sizes that an operator takes as numbers follow the
tensors whose sizes they were.
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
        """Whether a tensor from outside the step grows with the batch: like most tensors of its shape."""
        seen = self._seen.get(shape)
        return max(seen, key=lambda now: seen[now]) if seen else self.grown(shape)

    def grown(self, shape: Shape) -> Shape:
        """Of new data: its first dimension that has the size of the batch grows."""
        at = shape.index(self.batch) if self.batch in shape else len(shape)
        return (*shape[:at], self.width, *shape[at + 1 :]) if at < len(shape) else shape

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

    def expanded(self, shape: Sequence[int], before: Shape, now: Shape) -> Shape:
        """Sizes for an expansion."""
        lead = len(shape) - len(before)
        fixed = [at >= lead and before[at - lead] != 1 for at in range(len(shape))]
        kept = tuple(now[at - lead] if fixed[at] and size != -1 else size for at, size in enumerate(shape))
        free = [at for at, size in enumerate(shape) if size == self.batch and not fixed[at]]
        if not free or before != now:
            return kept
        return (*kept[: free[0]], self.width, *kept[free[0] + 1 :])

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
