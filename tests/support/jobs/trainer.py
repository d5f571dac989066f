"""Hugging Face `Trainer` on a tiny GPT-2 made from a config; no network."""

import os
import tempfile

import pace
import torch
from digest import fingerprint
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Data(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __init__(self) -> None:
        self.tokens = torch.randint(0, 64, (4096, 16))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class Pace(TrainerCallback):
    def on_step_end(self, arguments, state, control, **_kwargs):  # type: ignore[no-untyped-def]
        if state.global_step == 3:
            print("training", flush=True)
        if args.until and os.path.exists(args.until):
            control.should_training_stop = True


args = pace.parse()
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2))
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=4,
            max_steps=args.steps or 1_000_000,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            lr_scheduler_type="constant",  # the schedule must not depend on where the run ends
        ),
        train_dataset=Data(),
        callbacks=[Pace()],
    )
    trainer.train()
    print("steps", trainer.state.global_step, flush=True)
print("fingerprint", fingerprint(model), flush=True)
