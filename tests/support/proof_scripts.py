"""A small training script, and changes of it that are said to make it faster: honest ones, and fakes.

Each change is a list of replacements in the script's text. Fakes come with the reason that must be given.
"""

from dataclasses import dataclass
from pathlib import Path

from autobrrr.records.proof_records import WorkRefusal as Why

SCRIPT = """\
import sys
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
STEPS = int(sys.argv[1])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.first = nn.Linear(32, 96)
        self.second = nn.Linear(96, 96)
        self.head = nn.Linear(96, 10)

    def forward(self, words):
        hidden = self.embed(words).mean(1)
        hidden = F.relu(self.first(hidden))
        hidden = F.relu(self.second(hidden))
        return self.head(hidden)


words = torch.randint(0, 50, (2048, 16), generator=torch.Generator().manual_seed(1))
labels = words.sum(1) % 10
loader = DataLoader(TensorDataset(words, labels), batch_size=32, shuffle=True)
held_out = words[:256]
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def slow_part():
    total = 0.0
    for i in range(20000):
        total += i
    return total


def batches():
    while True:
        yield from loader


step = 0
for inputs, targets in batches():
    slow_part()
    optimizer.zero_grad()
    output = model(inputs)
    loss = F.cross_entropy(output, targets)
    loss.backward()
    optimizer.step()
    step += 1
    if step % 20 == 0:
        model.eval()
        with torch.no_grad():
            model(held_out)
        model.train()
        torch.save(model.state_dict(), "model.pt")
        print("step", step, "loss", float(loss), flush=True)
    if step == STEPS:
        break
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the script. `reasons`: of a fake, any of which is right; an honest one has none."""

    name: str
    edits: tuple[tuple[str, str], ...]
    reasons: tuple[Why, ...] = ()

    def text(self) -> str:
        found = SCRIPT
        for old, new in self.edits:
            assert found.count(old) == 1, (self.name, old)
            found = found.replace(old, new)
        return found


def fake(name: str, reason: Why, *edits: tuple[str, str]) -> Change:
    return Change(name=name, edits=edits, reasons=(reason,))


def honest(name: str, *edits: tuple[str, str]) -> Change:
    """Faster by what is left out, and changed besides."""
    return Change(name=name, edits=(FAST, *edits))


BACKWARD = "    loss.backward()\n"
UPDATE = "    optimizer.step()\n"
RETURNED_GRADIENTS = """\
    parameters = list(model.parameters())
    for parameter, gradient in zip(parameters, torch.autograd.grad(outputs=loss, inputs=parameters)):
        parameter.grad = gradient
"""
INPUTS = "    output = model(inputs)\n"
BOTH = BACKWARD + UPDATE
SLOW = "    slow_part()\n"
FAST = (SLOW, "")
LR, LOADING = "model.parameters(), lr=1e-3", "batch_size=32, shuffle=True"
AUTOCAST = """\
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(inputs)
    output = output.float()
"""
FAKES = (
    fake("skips_backward", Why.SKIPPED_BACKWARD, (BACKWARD, "    if step % 4:\n        loss.backward()\n")),
    fake(
        "skips_updates",
        Why.SKIPPED_UPDATES,
        (BOTH, "    loss.backward()\n    if step % 2:\n        optimizer.step()\n"),
    ),
    fake(
        "half_batch",
        Why.DROPPED_SAMPLES,
        (INPUTS, "    inputs, targets = inputs[:16], targets[:16]\n" + INPUTS),
    ),
    fake(
        "caches_a_batch",
        Why.CACHED_BATCH,
        ("        yield from loader", "        yield cached"),
        ("def batches():\n", "cached = next(iter(loader))\n\n\ndef batches():\n"),
    ),
    fake("shorter_sequences", Why.SHORTER_SEQUENCES, (INPUTS, "    output = model(inputs[:, :12])\n")),
    fake(
        "freezes_a_layer",
        Why.FROZEN_LAYERS,
        ("model = Net()\n", "model = Net()\nmodel.second.requires_grad_(False)\n"),
    ),
    fake("smaller_evaluation", Why.LESS_EVALUATION, ("model(held_out)\n", "model(held_out[:128])\n")),
    fake(
        "no_checkpoint", Why.FEWER_CHECKPOINTS, ('        torch.save(model.state_dict(), "model.pt")\n', "")
    ),
    fake("silent_bfloat16", Why.LOWER_PRECISION, (INPUTS, AUTOCAST)),
    fake("fewer_steps", Why.FEWER_STEPS, ("STEPS = int(sys.argv[1])", "STEPS = int(sys.argv[1]) * 3 // 4")),
    fake("no_weight_decay", Why.CHANGES_TRAINING, FAST, (LR, f"{LR}, weight_decay=0.0")),
)

HONEST = (
    honest("gradients_returned", (BACKWARD, RETURNED_GRADIENTS)),
    honest("vectorised"),
    honest("fused_update", (LR, f"{LR}, fused=True")),
    honest(
        "embedding_bag",
        ("self.embed = nn.Embedding(50, 32)", 'self.embed = nn.EmbeddingBag(50, 32, mode="mean")'),
        ("self.embed(words).mean(1)", "self.embed(words)"),
    ),
    honest("workers", (LOADING, f"{LOADING}, num_workers=1")),
)
# They draw one number less at the second epoch, whose order is another.
KEPT_WORKERS = honest("kept_workers", (LOADING, f"{LOADING}, num_workers=1, persistent_workers=True"))


def written(folder: Path, name: str, text: str) -> Path:
    """The script as a file."""
    file = folder / f"{name}.py"
    file.write_text(text)
    return file
