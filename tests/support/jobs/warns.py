"""A job whose code and hooks warn and log of their callers, some frames above them: is it told the same?"""

import logging
import sys
import warnings

import pace
import torch
from digest import fingerprint
from torch import nn
from torch.nn.modules import module
from torch.optim.optimizer import Optimizer

LEVELS = range(1, 7)
told: list[tuple[str, str, int]] = []


def show(message: Warning | str, _category: type[Warning], filename: str, line: int, *_: object) -> None:
    # Which of two lines of torch's leads to a watched call is not the script's.
    told.append((str(message), filename, 0 if filename == module.__file__ else line))


class Told(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        told.append((record.getMessage(), record.pathname, record.lineno))


def warn(place: str) -> None:
    for level in LEVELS:
        warnings.warn(f"{place} {level}", UserWarning, stacklevel=level)


class Warns(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # In a call with hooks of anybody's torch has a frame more.
        if sys._getframe(1).f_code.co_name != "inner":
            warn("forward")
        return super().forward(x)


args = pace.parse()
warnings.simplefilter("always")
warnings.showwarning = show
logger = logging.getLogger("job")
logger.addHandler(Told())
model = Warns(nn.Linear(32, 32), Warns(nn.ReLU()), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def after_step(_optimizer: Optimizer, _args: object, _kwargs: object) -> None:
    warn("optimizer")
    for level in LEVELS:
        logger.warning("logged %d", level, stacklevel=level)


optimizer.register_step_post_hook(after_step)
inputs = torch.randn(16, 32)
first: list[tuple[str, str, int]] = []
other: dict[tuple[str, str, int], int] = {}
for number in pace.steps(args, rest_s=0.002):
    told.clear()
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
    if number == 0:
        first = list(told)
    elif told != first and any("forward" in message for message, _, _ in told):
        for each in set(told) ^ set(first) or {("how many", "", len(told))}:
            other[each] = other.get(each, 0) + 1
print("first", len(first))
print("other", other)
print("fingerprint", fingerprint(model, optimizer), flush=True)
