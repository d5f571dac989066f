"""Training jobs as people write them: a Trainer, a closure, a scaler.

Each is `train(goes_on, marks)`: trains while `goes_on()` says so, notes the clock at the end of every step
of its own loop, and returns its losses and what to take fingerprints of.
"""

from __future__ import annotations

import logging
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


KINDS = {"lightning": lightning_trainer, "closure": closure, "scaler": scaler}
