"""Models that count in attributes whose names, or whose owners, their code does not spell out."""

from __future__ import annotations

import torch
from torch import nn

from support.batch_probe.shadow_traps import Trap


class Attribute(Trap):
    """Counts in an attribute of `owner`, under a name that is put together."""

    def owner(self) -> object:
        raise NotImplementedError

    def turn(self) -> int:
        name = "count" + str(0)
        setattr(self.owner(), name, getattr(self.owner(), name, 0) + 1)
        return int(getattr(self.owner(), name))

    def told(self) -> object:
        return getattr(self.owner(), "count0", 0)


class OnItself(Attribute):
    def owner(self) -> object:
        return self


class OnAPart(Attribute):
    def owner(self) -> object:
        return self.linear


class OnAParameter(Attribute):
    def owner(self) -> object:
        return self.linear.weight


class OnABuffer(Attribute):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(1))

    def owner(self) -> object:
        return self.scale


class OnATorchClass(Attribute):
    def __init__(self) -> None:
        super().__init__()
        nn.Linear.count0 = 0  # type: ignore[attr-defined]

    def owner(self) -> object:
        return type(self.linear)


class OnALibraryObject(Attribute):
    """As a model's configuration is: of a library's class, which is trusted."""

    def __init__(self) -> None:
        super().__init__()
        self.config = type("Config", (), {"__module__": "torch.nn.made"})()

    def owner(self) -> object:
        return self.config


class InItsDict(Trap):
    def turn(self) -> int:
        name = "count" + str(0)
        self.__dict__[name] = self.__dict__.get(name, 0) + 1
        return int(self.__dict__[name])

    def told(self) -> object:
        return self.__dict__.get("count0")


class UpdatesItsDict(InItsDict):
    def turn(self) -> int:
        self.__dict__.update({"count" + str(0): self.__dict__.get("count0", 0) + 1})
        return int(self.__dict__["count0"])


class MakesBuffers(Trap):
    def turn(self) -> int:
        self.register_buffer(f"made{len(self._buffers)}", torch.ones(1))
        return len(self._buffers)

    def told(self) -> object:
        return len(self._buffers)


ATTRIBUTES: tuple[type[Trap], ...] = (
    OnItself,
    OnAPart,
    OnAParameter,
    OnABuffer,
    OnATorchClass,
    OnALibraryObject,
    InItsDict,
    UpdatesItsDict,
    MakesBuffers,
)
