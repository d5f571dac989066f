"""A small language model on text that it makes itself: the job whose speed-ups are judged.

`text_job.py` runs it as it is; `slower_job.py` with one thing changed.
All that a training script does is a method here: batches, loss, update, evaluation, checkpoint.
"""

import math
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

WORDS, WIDTH, HEADS, LENGTH, BATCH, EVALUATED = 256, 48, 4, 32, 16, 256
STEPS = int(os.environ.get("TEXT_JOB_STEPS", "600"))


class Text(Dataset[Tensor]):
    """Sequences of LENGTH + 1 words, in which every word depends on the one before."""

    def __init__(self, count: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        noise = torch.randint(0, 4, (count, LENGTH + 1), generator=draw)
        words = [torch.randint(0, WORDS, (count,), generator=draw)]
        for place in range(LENGTH):
            words.append((words[-1] * 5 + noise[:, place]) % WORDS)
        self.words = torch.stack(words, dim=1)

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> Tensor:
        return self.words[index]


class Block(nn.Module):
    """Attention and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.wide, self.mixed = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.hidden = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def attention(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Causal; each (batch, heads, length, width of a head)."""
        score = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        later = torch.ones(score.shape[-2:], dtype=torch.bool).triu(1)
        return score.masked_fill(later, -math.inf).softmax(-1) @ value

    def forward(self, inputs: Tensor) -> Tensor:
        shape = inputs.shape[0], inputs.shape[1], 3, HEADS, WIDTH // HEADS
        query, key, value = self.wide(self.first(inputs)).reshape(shape).permute(2, 0, 3, 1, 4)
        mixed = self.attention(query, key, value).transpose(1, 2).reshape(inputs.shape)
        inputs = inputs + self.mixed(mixed)
        return inputs + self.hidden(self.second(inputs))


class Model(nn.Module):
    """Words (batch, length) to logits (batch, length, WORDS)."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def embed(self, words: Tensor) -> Tensor:
        """Words and their places."""
        return self.words(words) + self.places.weight[: words.shape[1]]

    def forward(self, words: Tensor) -> Tensor:
        inputs = self.embed(words)
        for block in self.blocks:
            inputs = block(inputs)
        return self.head(inputs)


class Training:
    """One run from beginning to end."""

    threads = 1
    seed = 0

    def __init__(self) -> None:
        torch.set_num_threads(self.threads)
        torch.manual_seed(self.seed)
        self.text, self.held_out = Text(BATCH * STEPS, 1), Text(EVALUATED, 2)
        self.model = self.make_model()
        self.optimizer = self.make_optimizer()
        self.step = 0

    def make_model(self) -> Model:
        """The model."""
        return Model()

    def make_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer."""
        return torch.optim.AdamW(self.model.parameters(), lr=1e-3, foreach=False)

    def batches(self) -> Iterable[Tensor]:
        """Batches (BATCH, LENGTH + 1)."""
        return DataLoader(self.text, batch_size=BATCH, shuffle=True)

    def loss(self, batch: Tensor) -> Tensor:
        """Cross-entropy of the next words."""
        logits = self.model(batch[:, :-1])
        return functional.cross_entropy(logits.reshape(-1, WORDS), batch[:, 1:].reshape(-1))

    def update(self, batch: Tensor) -> float:
        """One step; the loss."""
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def evaluate(self) -> float:
        """Mean loss of the held-out text."""
        self.model.eval()
        with torch.no_grad():
            found = [self.loss(batch).item() for batch in DataLoader(self.held_out, batch_size=BATCH)]
        self.model.train()
        return sum(found) / len(found)

    def save(self) -> None:
        """A checkpoint."""
        with tempfile.TemporaryDirectory() as folder:
            torch.save(
                {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()},
                Path(folder, "last.pt"),
            )

    def run(self) -> None:
        """Train, evaluate four times, save."""
        for batch in self.batches():
            loss = self.update(batch)
            self.step += 1
            if self.step % (STEPS // 4) == 0:
                print(f"step {self.step}: loss {loss:.3f}, evaluation {self.evaluate():.3f}", flush=True)
        self.save()


if __name__ == "__main__":
    Training().run()
