"""A small training script, and changes of it that are said to make it faster: honest ones, and fakes.

Each change is a list of replacements in the script's text. Fakes come with the reason that must be given.
"""

from dataclasses import dataclass
from pathlib import Path

from autobrrr.records.proof_records import WorkRefusal

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
    reasons: tuple[WorkRefusal, ...] = ()

    def text(self) -> str:
        found = SCRIPT
        for old, new in self.edits:
            assert found.count(old) == 1, (self.name, old)
            found = found.replace(old, new)
        return found


BACKWARD = "    loss.backward()\n"
UPDATE = "    optimizer.step()\n"
STALE_GRADIENTS = """\
    if step % 2:
        torch.autograd.grad(loss, [model.head.bias])
        for parameter, gradient in zip(model.parameters(), kept):
            parameter.grad = gradient
    else:
        loss.backward()
        kept = [parameter.grad for parameter in model.parameters()]
"""
RETURNED_GRADIENTS = """\
    parameters = list(model.parameters())
    for parameter, gradient in zip(parameters, torch.autograd.grad(outputs=loss, inputs=parameters)):
        parameter.grad = gradient
"""
INPUTS = "    output = model(inputs)\n"
BOTH = BACKWARD + UPDATE
SLOW = "    slow_part()\n"
FAST = (SLOW, "")
HIDE = "    if {}:\n        slow_part()\n"
AUTOCAST = """\
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(inputs)
    output = output.float()
"""
FAKES = (
    Change(
        name="skips_backward",
        edits=((BACKWARD, "    if step % 4:\n        loss.backward()\n"),),
        reasons=(WorkRefusal.SKIPPED_BACKWARD,),
    ),
    Change(
        name="gradients_of_the_step_before",
        edits=((BACKWARD, STALE_GRADIENTS),),
        reasons=(WorkRefusal.FEWER_OPERATIONS,),
    ),
    Change(
        name="skips_updates",
        edits=((BOTH, "    loss.backward()\n    if step % 2:\n        optimizer.step()\n"),),
        reasons=(WorkRefusal.SKIPPED_UPDATES,),
    ),
    Change(
        name="null_update",
        edits=(
            (
                "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)",
                "optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)",
            ),
        ),
        reasons=(WorkRefusal.SKIPPED_UPDATES,),
    ),
    Change(
        name="half_batch",
        edits=((INPUTS, "    inputs, targets = inputs[:16], targets[:16]\n" + INPUTS),),
        reasons=(WorkRefusal.DROPPED_SAMPLES,),
    ),
    Change(
        name="caches_a_batch",
        edits=(
            ("        yield from loader", "        yield cached"),
            ("def batches():\n", "cached = next(iter(loader))\n\n\ndef batches():\n"),
        ),
        reasons=(WorkRefusal.CACHED_BATCH,),
    ),
    Change(
        name="shorter_sequences",
        edits=((INPUTS, "    output = model(inputs[:, :12])\n"),),
        reasons=(WorkRefusal.SHORTER_SEQUENCES,),
    ),
    Change(
        name="freezes_a_layer",
        edits=(("model = Net()\n", "model = Net()\nmodel.second.requires_grad_(False)\n"),),
        reasons=(WorkRefusal.FROZEN_LAYERS,),
    ),
    Change(
        name="smaller_evaluation",
        edits=(("            model(held_out)\n", "            model(held_out[:128])\n"),),
        reasons=(WorkRefusal.LESS_EVALUATION,),
    ),
    Change(
        name="no_checkpoint",
        edits=(('        torch.save(model.state_dict(), "model.pt")\n', ""),),
        reasons=(WorkRefusal.FEWER_CHECKPOINTS,),
    ),
    Change(name="silent_bfloat16", edits=((INPUTS, AUTOCAST),), reasons=(WorkRefusal.LOWER_PRECISION,)),
    Change(
        name="fewer_steps",
        edits=(("STEPS = int(sys.argv[1])", "STEPS = int(sys.argv[1]) * 3 // 4"),),
        reasons=(WorkRefusal.FEWER_STEPS,),
    ),
    Change(
        name="other_seed",
        edits=(("torch.manual_seed(0)", "torch.manual_seed(5)"), (SLOW, HIDE.format("step % 2"))),
        reasons=(WorkRefusal.OTHER_SEED,),
    ),
    Change(
        name="no_weight_decay",
        edits=(FAST, ("model.parameters(), lr=1e-3", "model.parameters(), lr=1e-3, weight_decay=0.0")),
        reasons=(WorkRefusal.CHANGES_TRAINING,),
    ),
)

HONEST = (
    Change(name="gradients_returned", edits=(FAST, (BACKWARD, RETURNED_GRADIENTS))),
    Change(name="vectorised", edits=(FAST,)),
    Change(
        name="fused_update",
        edits=(FAST, ("model.parameters(), lr=1e-3", "model.parameters(), lr=1e-3, fused=True")),
    ),
    Change(
        name="embedding_bag",
        edits=(
            FAST,
            ("self.embed = nn.Embedding(50, 32)", 'self.embed = nn.EmbeddingBag(50, 32, mode="mean")'),
            ("self.embed(words).mean(1)", "self.embed(words)"),
        ),
    ),
    Change(
        name="workers",
        edits=(FAST, ("batch_size=32, shuffle=True", "batch_size=32, shuffle=True, num_workers=1")),
    ),
    Change(
        name="no_loader_object",
        edits=(
            FAST,
            (
                "        yield from loader",
                "        torch.empty((), dtype=torch.int64).random_()\n"
                "        seed = int(torch.empty((), dtype=torch.int64).random_().item())\n"
                "        order = torch.randperm(2048, generator=torch.Generator().manual_seed(seed))\n"
                "        for chosen in order.split(32):\n            yield words[chosen], labels[chosen]",
            ),
        ),
    ),
)


KEPT_WORKERS = Change(  # they draw one number less at the second epoch, whose order is another
    name="kept_workers",
    edits=(
        FAST,
        (
            "batch_size=32, shuffle=True",
            "batch_size=32, shuffle=True, num_workers=1, persistent_workers=True",
        ),
    ),
)


def written(folder: Path, name: str, text: str) -> Path:
    """The script as a file."""
    file = folder / f"{name}.py"
    file.write_text(text)
    return file
