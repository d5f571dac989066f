"""What a changed call returns, with its tensors replaced by what the plain call would return.

An object of the job's own may hold tensors that no walk finds, or keep some from one call to the next: where
one is given or returned, the changed call raises, and the plain one answers. Keys and values of attention as
transformers returns them (`Cache`) are looked into.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable
from types import ModuleType
from typing import cast

from ...job_code.installed_code import home_of
from ...live_torch.pytrees import leaves, map_tree
from ...live_torch.torch_types import Abstain, Tensor

_CACHES = "transformers.cache_utils"
PLAIN = (bool, int, float, complex, str, bytes, type(None))


def seen_through(torch: ModuleType) -> tuple[type, ...]:
    """Types of which nothing is hidden: tensors and plain values."""
    return torch.Tensor, torch.dtype, torch.device, enum.Enum, type, *PLAIN


def refuse_unseen(torch: ModuleType, given: object) -> None:
    """Raises Abstain where arguments may hold tensors that are not seen."""
    known = seen_through(torch)
    for each in leaves(given):
        if not isinstance(each, known):
            raise Abstain(f"its arguments hold what can't be looked into ({type(each).__name__})")


def map_tensors(torch: ModuleType, result: object, change: Callable[[Tensor], object]) -> object:
    """The same nest with every tensor replaced by `change(it)`.

    Raises:
        Abstain: a leaf may hold tensors that are not seen.
    """
    known = seen_through(torch)

    def leaf(each: object) -> object:
        if isinstance(each, torch.Tensor):
            return change(cast(Tensor, each))
        if home_of(type(each)) == _CACHES:
            twin = copy.copy(each)
            vars(twin).update({name: map_tree(value, leaf) for name, value in vars(each).items()})
            return twin
        if not isinstance(each, known):
            raise Abstain(f"its results hold what can't be looked into ({type(each).__name__})")
        return each

    return map_tree(result, leaf)
