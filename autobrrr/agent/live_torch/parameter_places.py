"""Where parameters stand in their modules: to come back to them without a reference to a tensor.

torch swaps no tensor that somebody refers to weakly (`swap_tensors`, `load_state_dict` and `to` under
`set_swap_module_params_on_conversion`), and a strong reference would keep it. So the module is remembered,
weakly, with the name.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

from .torch_types import Module, Tensor


@dataclass(frozen=True, slots=True)
class Place:
    """A parameter's name in the module that holds it, and which object stood there."""

    module: weakref.ref[Module]
    name: str
    identity: int

    def parameter(self) -> Tensor | None:
        """The parameter; None where the module is gone, or another one stands there."""
        module = self.module()
        found = None if module is None else cast("Tensor | None", vars(module)["_parameters"].get(self.name))
        return found if id(found) == self.identity else None


def places_of(modules: Iterable[Module]) -> Iterator[tuple[Place, Tensor]]:
    """Each parameter once, with the first place where it stands."""
    seen = set[int]()
    for module in modules:
        for part in module.modules():
            held = cast("dict[str, Tensor | None]", vars(part)["_parameters"])
            for name, each in held.items():
                if each is not None and id(each) not in seen:
                    seen.add(id(each))
                    yield Place(weakref.ref(part), name, id(each)), each
