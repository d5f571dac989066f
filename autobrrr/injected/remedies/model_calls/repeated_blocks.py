"""Finds the blocks that a model repeats: the layers of a transformer, the stages of a residual net.

In: a root module. Out: its outermost modules of one class and shape of parameters that stand beside
each other several times.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...live_torch.torch_types import Module
from ..registry import Refused

FEWEST = 2
SHARE = 0.3  # of the trained parameters, for it to be worth while


def repeated_blocks(roots: Iterable[Module]) -> list[Module]:
    """All repeated blocks below the roots, in the order of the tree.

    Raises:
        Refused: nothing is repeated, or what is holds few of the parameters.
    """
    found: list[Module] = []
    for root in roots:
        found += _below(root)
    if not found:
        raise Refused("no block of the model is repeated")
    inside = _size(found)
    if inside < SHARE * _size(roots):
        share = 100 * inside / max(1, _size(roots))
        raise Refused(f"the repeated blocks hold only {share:.0f} % of the parameters")
    return found


def _below(module: Module) -> list[Module]:
    kinds: dict[object, list[Module]] = {}
    for child in module.children():
        kinds.setdefault(_kind(child), []).append(child)
    repeated: set[int] = set()
    for kind, alike in kinds.items():
        if kind is not None and len(alike) >= FEWEST:
            repeated |= {id(each) for each in alike}
    found: list[Module] = []
    for child in module.children():
        found += [child] if id(child) in repeated else _below(child)
    return found


def _kind(module: Module) -> object:
    """What makes blocks alike; None for what is no block: a single layer, a container without forward."""
    shapes = tuple((tuple(each.shape), each.requires_grad) for each in module.parameters())
    container = type(module).__name__ in ("ModuleList", "ModuleDict", "ParameterList")
    if container or not any(True for _ in module.children()) or not any(wanted for _, wanted in shapes):
        return None
    return type(module), shapes


def _size(modules: Iterable[Module]) -> int:
    trained = {
        id(each): each.numel() for module in modules for each in module.parameters() if each.requires_grad
    }
    return sum(trained.values())
