"""A tagger of letters under Lightning's Trainer; a callback tells the stopwatch of each batch."""

import logging
import tempfile
import warnings
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.planted.held_out.language.bleu import bleu
from benchmarks.planted.loop import Knobs, Loop, planted_job


class Tagger(lightning.LightningModule):
    """Embeds letters, tags each; before that its step scores texts in Python."""

    def __init__(self, width: int, loop: Loop, texts: int) -> None:
        super().__init__()
        self.loop = loop
        self.texts = torch.randint(0, 20, (texts, 2, 40)).tolist()
        self.scored = 0.0
        self.net = nn.Sequential(
            nn.Embedding(30, width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 5)
        )

    def training_step(self, batch: list[Tensor], _index: int) -> Tensor:
        letters, tags = batch
        if self.texts:
            self.loop.mark("loading")
            self.scored = sum(bleu(said, meant) for said, meant in self.texts)
            self.loop.mark("host")
        loss = nn.functional.cross_entropy(self.net(letters).flatten(0, 1), tags.flatten())
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class BatchClock(lightning.Callback):
    """Takes the steps of the loop one by one, as the trainer makes them."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.steps = loop, iter(loop)

    def on_train_batch_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        if next(self.steps, None) is None:
            trainer.should_stop = True

    def on_train_batch_end(self, *_: Any) -> None:
        self.loop.mark("model")


@planted_job(width=16, batch=4, length=12, texts=0)
def main(loop: Loop, args: Knobs) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    many, length = 200_000, loop.size(args.length, 1)
    data = TensorDataset(torch.randint(0, 30, (many, length)), torch.randint(0, 5, (many, length)))
    batches = DataLoader(data, batch_size=loop.size(args.batch, 1))
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=-1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[BatchClock(loop)],
            default_root_dir=folder,
        )
        trainer.fit(Tagger(loop.size(args.width, 2), loop, args.texts), batches)
