"""A small training loop for the contract of remedies, and a picture of all that a remedy may not change."""

import gc
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import Remedy, Undo
from support.agent.remedy_models import MODELS
from support.agent.visible import UPDATES

Apply = Callable[[Job, Mapping[str, object]], Undo]
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


OPTIONS: dict[str, dict[str, object]] = {
    "threads.intra_op": {"threads": 2},
    "attention.sdpa": {"kernel": "math"},
    "loader.workers": {"workers": 2},
}
MODEL_FOR = {
    "compile.regional": "blocks",
    "recompute.checkpoint": "blocks",
    "layout.channels_last": "images",
    "attention.sdpa": "attention",
}


@dataclass
class Training:
    """A net with dropout, its optimizer, and the job as the agent would know it."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    job: Job
    device: str
    loaders: list[DataLoader[object]] = field(default_factory=list)
    reads: bool = False  # an epoch of each loader before the steps

    def train(self, steps: int) -> None:
        for loader in self.loaders if self.reads else ():
            assert torch.cat([rows for (rows,) in loader]).flatten().tolist() == list(range(40))
        for _ in range(steps):
            x = torch.randn(8, 16, device=self.device).to(next(self.model.parameters()).dtype)
            self.optimizer.zero_grad()
            self.model(x).square().mean().backward()
            self.optimizer.step()


def training(
    optimizer: str = "AdamW", *, device: str = "cpu", dtype: torch.dtype | None = None, model: str = "plain"
) -> Training:
    """Make the loop, with two steps done; always from the same seed."""
    return loop_of(MODELS[model], optimizer, device=device, dtype=dtype)


def loop_of(
    make: Callable[[], nn.Module],
    optimizer: str = "AdamW",
    *,
    device: str = "cpu",
    dtype: torch.dtype | None = None,
) -> Training:
    """The same around any model that takes 16 features."""
    torch.manual_seed(3)
    model = make().to(device)
    if dtype is not None:
        model = model.to(dtype)
    made = OPTIMIZERS[optimizer](list(model.parameters()))
    job = Job(torch)
    loop = Training(model, made, job, device)
    loop.train(2)
    job.saw_optimizer(made)
    job.saw_root(model)
    data = TensorDataset(torch.arange(40.0).reshape(20, 2))
    loop.loaders += [DataLoader(data, batch_size=4, num_workers=workers) for workers in (0, 1)]
    for loader in loop.loaders:
        job.saw_loader(loader)
    return loop


def job_for(remedy: Remedy, optimizer: str = "AdamW", device: str = "cpu") -> Training:
    return training(optimizer, device=device, model=MODEL_FOR.get(remedy.name, "plain"))


AT_START = ("ddp.", "host.", "cuda.allocator", "threads.inter_op")  # there is nothing to undo in a run
UNDONE = {name: remedy for name, remedy in REGISTRY.items() if not name.startswith(AT_START)}


def pairs() -> list[object]:
    """Every remedy that can be undone, those of optimizers with each of these."""
    return [
        pytest.param(remedy, optimizer, id=f"{remedy.name}-{optimizer}")
        for remedy in UNDONE.values()
        for optimizer in (OPTIMIZERS if remedy.name.startswith("optimizer.") else ["AdamW"])
    ]


def remedy(name: str = "a", apply: Apply = lambda job, options: lambda: None, **more: object) -> Remedy:
    """One that changes nothing of its own accord."""
    made = Remedy(
        name=name, apply=apply, treats=("overhead",), reach="live", cls="bitwise", doc="", targets=(name,)
    )
    return replace(made, **more)


def options_of(remedy: Remedy) -> dict[str, object]:
    return remedy.option_values(OPTIONS.get(remedy.name, {}))


def release(remedy: Remedy) -> None:
    """What it keeps for the next apply goes, as at the end of a session."""
    if remedy.release is not None:
        remedy.release(torch)


def float32_values() -> list[str]:
    """What torch 2.9 and later hold for each backend and operator, apart from the old flags."""
    read = getattr(torch._C, "_get_fp32_precision_getter", None)
    places = [(backend, op) for backend in ("cuda", "mkldnn") for op in ("all", "matmul", "conv", "rnn")]
    return [] if read is None else [read(*each) for each in places]


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
        "updates": [list(vars(module).items()) for module in UPDATES],
        "modules": [list(vars(module)) for module in loop.model.modules()],
        "random": torch.get_rng_state().tolist(),
        "threads": torch.get_num_threads(),
        "environment": dict(os.environ),
        "children": Path("/proc/thread-self/children").read_text().split(),
        "modes": (
            torch.get_float32_matmul_precision(),
            float32_values(),
            torch.backends.cuda.flash_sdp_enabled(),
            torch.backends.cuda.math_sdp_enabled(),
        ),
        "marks": [list(vars(parameter)) for parameter in loop.model.parameters()],
        "loaders": [list(vars(loader).items()) for loader in loop.loaders],
        "loading": DataLoader.__dict__["__iter__"],
        "cpus": sorted(os.sched_getaffinity(0)),
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
