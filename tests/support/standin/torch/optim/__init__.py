"""One optimizer on top of the hook registries."""

from . import optimizer
from .optimizer import Optimizer


class SGD(Optimizer):
    """Subtracts one."""

    def _update(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.value -= group["lr"]


__all__ = ["SGD", "Optimizer", "optimizer"]
