"""A tiny BERT that Hugging Face's Trainer trains; a callback tells the stopwatch of each step."""

import os
import tempfile
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from benchmarks.planted.held_out.language.bleu import bleu
from benchmarks.planted.loop import Knobs, Loop, planted_job

os.environ["HF_HUB_OFFLINE"] = "1"

from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


class Reviews(Dataset[dict[str, Tensor]]):
    """Random texts with labels."""

    def __init__(self, length: int) -> None:
        self.ids = torch.randint(0, 100, (512, length))

    def __len__(self) -> int:
        return 4_000_000

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.ids[index % 512], "labels": torch.tensor(index % 2)}


class StepClock(TrainerCallback):
    """Takes the steps of the loop one by one, as the trainer makes them; then scores texts in Python."""

    def __init__(self, loop: Loop, texts: int) -> None:
        self.loop, self.steps = loop, iter(loop)
        self.texts = torch.randint(0, 20, (texts, 2, 40)).tolist()
        self.scored = 0.0

    def on_step_begin(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        if next(self.steps, None) is None:
            control.should_training_stop = True

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.loop.mark("model")
        if self.texts:
            self.scored = sum(bleu(said, meant) for said, meant in self.texts)
            self.loop.mark("host")


@planted_job(width=16, layers=2, length=8, batch=2, texts=0)
def main(loop: Loop, args: Knobs) -> None:
    width, length = loop.size(args.width, 2), loop.size(args.length, 2)
    config = BertConfig(
        vocab_size=100,
        hidden_size=width,
        num_hidden_layers=args.layers,
        num_attention_heads=2,
        intermediate_size=2 * width,
        max_position_embeddings=16,
    )
    with tempfile.TemporaryDirectory() as folder:
        told = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=loop.size(args.batch, 1),
            max_steps=1_000_000,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=BertForSequenceClassification(config),
            args=told,
            train_dataset=Reviews(length),
            callbacks=[StepClock(loop, args.texts)],
        )
        trainer.train()
