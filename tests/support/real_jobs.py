"""Training jobs as people write them: a Trainer, a closure, a scaler, one rank of two.

Each is `train(goes_on, marks)`: trains while `goes_on()` says so, notes the clock at the end of every step
of its own loop, and returns its losses and what to take fingerprints of.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable

import torch
from torch import nn

GoesOn = Callable[[], bool]
PLANTED_S = 0.001  # slept in every forward: the least that has to be found there


class Slow(nn.Module):
    """A forward whose least duration is known."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(PLANTED_S)
        return x


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), Slow(), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 2))


def loader() -> object:
    torch.manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.randn(48, 8), torch.randint(0, 2, (48,)))
    return torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)


def lightning_trainer(goes_on: GoesOn, marks: list[int]) -> tuple[list[float], tuple[object, ...]]:
    """Automatic optimization: forward and backward lie in a closure that the optimizer calls."""
    import lightning

    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    losses: list[float] = []

    class Tiny(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            losses.append(float(loss))
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    class Watch(lightning.Callback):
        def on_train_batch_end(self, trainer: lightning.Trainer, *_: object) -> None:
            marks.append(time.perf_counter_ns())
            if not goes_on():
                trainer.should_stop = True

    model = Tiny()
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=-1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
            callbacks=[Watch()],
        )
        trainer.fit(model, loader())
    return losses, (model, trainer.optimizers[0])


def closure(goes_on: GoesOn, marks: list[int]) -> tuple[list[float], tuple[object, ...]]:
    """LBFGS: several forwards and backwards inside one step of the optimizer."""
    model, losses = net().eval(), []
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.05, max_iter=3, history_size=4)
    while goes_on():
        x = torch.randn(16, 8)

        def evaluate(x: torch.Tensor = x) -> torch.Tensor:
            optimizer.zero_grad()
            loss = (model(x) - x[:, :2]).square().mean()
            loss.backward()
            return loss

        losses.append(float(optimizer.step(evaluate)))
        marks.append(time.perf_counter_ns())
    return losses, (model, optimizer)


SKIPPED_EVERY = 5


def scaler(goes_on: GoesOn, marks: list[int]) -> tuple[list[float], tuple[object, ...]]:
    """A GradScaler holds back every fifth update: the gradients overflow there."""
    model, losses = net(), []
    optimizer = torch.optim.AdamW(model.parameters())
    scaling = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=SKIPPED_EVERY - 1)
    while goes_on():
        optimizer.zero_grad()
        loss = model(torch.randn(8, 8)).square().mean()
        losses.append(float(loss))
        over = len(marks) % SKIPPED_EVERY == SKIPPED_EVERY - 1
        scaling.scale(loss * float("inf") if over else loss).backward()
        scaling.step(optimizer)
        scaling.update()
        marks.append(time.perf_counter_ns())
    return losses, (model, optimizer)


def rank(goes_on: GoesOn, marks: list[int]) -> tuple[list[float], tuple[object, ...]]:
    """DistributedDataParallel on gloo. Rank 0 says by a broadcast of its own whether both go on."""
    import torch.distributed as dist

    model = nn.parallel.DistributedDataParallel(net())
    optimizer = torch.optim.AdamW(model.parameters())
    torch.manual_seed(10 + dist.get_rank())
    losses: list[float] = []
    while True:
        flag = torch.tensor(int(dist.get_rank() == 0 and goes_on()))
        dist.broadcast(flag, 0)
        if not flag:
            return losses, (model, optimizer)
        optimizer.zero_grad()
        loss = model(torch.randn(8, 8)).square().mean()
        losses.append(float(loss))
        loss.backward()
        optimizer.step()
        marks.append(time.perf_counter_ns())


SECOND_RANK = """
import torch
import torch.distributed as dist
from support import real_jobs
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=INIT, rank=1, world_size=2)
for _ in range(3):
    torch.manual_seed(0)
    losses, _ = real_jobs.rank(lambda: True, [])
    print("losses", losses, flush=True)
dist.destroy_process_group()
"""


def begin_ranks(folder: str) -> subprocess.Popen[str]:
    """Start the second rank and become the first one."""
    import torch.distributed as dist

    init = f"file://{folder}/store"
    second = subprocess.Popen(
        [sys.executable, "-c", SECOND_RANK.replace("INIT", repr(init))],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    dist.init_process_group("gloo", init_method=init, rank=0, world_size=2)
    return second


KINDS = {"lightning": lightning_trainer, "closure": closure, "scaler": scaler, "rank": rank}
