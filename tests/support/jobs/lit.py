"""A Lightning Trainer on a tiny module."""

import logging
import sys
import tempfile
import warnings
from pathlib import Path

import lightning
import pace
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tiny(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


sys.path.append(str(Path(__file__).resolve().parents[2]))
from support.updates import Seen  # noqa: E402

args = pace.parse()
seen = Seen(torch.optim.AdamW)
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
loader = DataLoader(TensorDataset(torch.randn(64, 32), torch.randint(0, 4, (64,))), batch_size=8)
with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(
        max_steps=args.steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(Tiny(), loader)
flag = trainer.optimizers[0].param_groups[0]["foreach"]
print("updates", seen.last, flag, "workers", loader.num_workers, flush=True)
