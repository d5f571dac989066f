"""A small training loop for the contract of remedies, and a picture of all that a remedy may not change."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from autobrrr.agent.job import Job

MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

OPTIMIZERS: dict[str, MakeOptimizer] = {
    "AdamW": lambda params: torch.optim.AdamW(params, lr=1e-2),
    "AdamW amsgrad": lambda params: torch.optim.AdamW(params, lr=1e-2, amsgrad=True),
    "Adam": lambda params: torch.optim.Adam(params, lr=1e-2, weight_decay=1e-2),
    "Adam two groups": lambda params: torch.optim.Adam(
        [{"params": params[:2], "lr": 1e-3}, {"params": params[2:]}]
    ),
    "SGD": lambda params: torch.optim.SGD(params, lr=1e-2),
    "SGD momentum": lambda params: torch.optim.SGD(params, lr=1e-2, momentum=0.9, nesterov=True),
    "Adagrad": lambda params: torch.optim.Adagrad(params, lr=1e-2),
    "RMSprop": lambda params: torch.optim.RMSprop(params, lr=1e-3, momentum=0.5),
    "Adadelta": torch.optim.Adadelta,
    "Adamax": torch.optim.Adamax,
    "NAdam": torch.optim.NAdam,
    "RAdam": torch.optim.RAdam,
    "ASGD": torch.optim.ASGD,
    "Rprop": torch.optim.Rprop,
}


@dataclass
class Training:
    """A net with dropout, its optimizer, and the job as the agent would know it."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    job: Job
    device: str

    def train(self, steps: int) -> None:
        for _ in range(steps):
            x = torch.randn(8, 16, device=self.device).to(next(self.model.parameters()).dtype)
            self.optimizer.zero_grad()
            self.model(x).square().mean().backward()
            self.optimizer.step()


def training(optimizer: str = "AdamW", *, device: str = "cpu", dtype: torch.dtype | None = None) -> Training:
    """Make the loop, with two steps done; always from the same seed."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 4)).to(device)
    if dtype is not None:
        model = model.to(dtype)
    made = OPTIMIZERS[optimizer](list(model.parameters()))
    job = Job(torch)
    loop = Training(model, made, job, device)
    loop.train(2)
    job.saw_optimizer(made)
    job.saw_root(model)
    return loop


def picture(loop: Training) -> dict[str, object]:
    """Everything that an undo must put back, in a form that compares."""
    return {
        "weights": [_tensor(parameter) for parameter in loop.model.parameters()],
        "groups": [
            [(name, _plain(value)) for name, value in group.items()] for group in loop.optimizer.param_groups
        ],
        "state": [
            [(name, _plain(value)) for name, value in loop.optimizer.state[parameter].items()]
            for parameter in loop.model.parameters()
            if parameter in loop.optimizer.state
        ],
        "optimizer": list(vars(loop.optimizer)),
        "class": list(vars(type(loop.optimizer)).items()),
        "modules": [list(vars(module)) for module in loop.model.modules()],
        "random": torch.get_rng_state().tolist(),
        "threads": torch.get_num_threads(),
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > 2000),
    }


def _plain(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value


def _tensor(value: torch.Tensor) -> object:
    return str(value.dtype), str(value.device), value.stride(), value.detach().cpu().tolist()
