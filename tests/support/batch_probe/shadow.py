"""The zoo: small training jobs of every kind that a probe may meet, each one function.

`ACCEPTED` names the batch that has to be found; those that must be refused lie in `shadow_refused`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from support.batch_probe.shadow_loop import Kind, OneLayer

Job = Callable[[], Kind]


def supervised(
    model: nn.Module,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = functional.cross_entropy,
    *,
    optimizer: torch.optim.Optimizer | None = None,
) -> Kind:
    """The plain loop: `inputs` and `labels` hold some batches, used in turn."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-3)
    turn = _turns(len(inputs))

    def step() -> None:
        at = next(turn)
        optimizer.zero_grad()
        loss(model(inputs[at]), labels[at]).backward()
        optimizer.step()

    return Kind([model, optimizer], step)


def _turns(count: int) -> Iterator[int]:
    while True:
        yield from range(count)


def mlp() -> Kind:
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 4))
    return supervised(model, torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8)))


def gradients_returned() -> Kind:
    """No backward call: gradients are asked for, and put where the optimizer looks for them."""
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4))
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW(weights, lr=1e-3)
    data, labels = torch.randn(8, 12), torch.randint(0, 4, (8,))

    def step() -> None:
        loss = functional.cross_entropy(model(data), labels)
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.grad = gradient
        optimizer.step()

    return Kind([model, optimizer], step)


def cnn_with_batch_norm() -> Kind:
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 4),
    )
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return supervised(model, torch.randn(4, 8, 3, 10, 10), torch.randint(0, 4, (4, 8)), optimizer=sgd)


class Recurrent(nn.Module):
    """Time first, batch second."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 10, num_layers=2, dropout=0.1)
        self.head = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0])


def lstm_time_first() -> Kind:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(out.reshape(-1, 3), labels.reshape(-1))

    return supervised(Recurrent(), torch.randn(4, 5, 8, 6), torch.randint(0, 3, (4, 5, 8)), loss)


class LanguageModel(nn.Module):
    def __init__(self, words: int = 31, width: int = 16, length: int = 12) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width), nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, 2, 24, dropout=0.1, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.body(self.embed(tokens) + self.place[: tokens.shape[1]], mask, is_causal=True))


def transformer_with_the_loss_outside() -> Kind:
    model = LanguageModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, 31, (4, 8, 13))
    turn = _turns(4)

    def step() -> None:
        batch = tokens[next(turn)]
        optimizer.zero_grad()
        logits = model(batch[:, :-1])
        size, length, words = logits.shape
        loss = functional.cross_entropy(logits.view(size * length, words), batch[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return Kind([model, optimizer], step)


def gpt2_from_transformers() -> Kind:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, 40, (4, 8, 10))
    turn = _turns(4)

    def step() -> None:
        batch = tokens[next(turn)]
        optimizer.zero_grad()
        output = model(input_ids=batch, attention_mask=torch.ones_like(batch), labels=batch)
        output.loss.backward()
        optimizer.step()

    return Kind([model, optimizer], step)


def gan_with_two_optimizers() -> Kind:
    generator = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 8))
    critic = nn.Sequential(nn.Linear(8, 12), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(12, 1))
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    judge = nn.BCEWithLogitsLoss()

    def step() -> None:
        real, fake = torch.randn(8, 8), generator(torch.randn(8, 6))
        of_critic.zero_grad()
        loss = judge(critic(real), torch.ones(8, 1)) + judge(critic(fake.detach()), torch.zeros(8, 1))
        loss.backward()
        of_critic.step()
        of_generator.zero_grad()
        judge(critic(fake), torch.ones(8, 1)).backward()
        of_generator.step()

    return Kind([generator, critic, of_critic, of_generator], step)


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag, self.dense = nn.EmbeddingBag(50, 6, mode="sum"), nn.Linear(5, 6)
        self.top = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, dense: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return self.top(torch.cat([self.dense(dense), self.bag(indices, offsets)], 1)).squeeze(1)


def recommender_with_bag_offsets() -> Kind:
    model = Recommender()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    dense, target = torch.randn(8, 5), torch.rand(8).round()
    lengths = torch.randint(1, 5, (8,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
    indices = torch.randint(0, 50, (int(lengths.sum()),))

    def step() -> None:
        optimizer.zero_grad()
        functional.binary_cross_entropy_with_logits(model(dense, indices, offsets), target).backward()
        optimizer.step()

    return Kind([model, optimizer], step)


class SeveralTables(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(50, 6, mode="sum") for _ in range(3))
        self.dense, self.top = nn.Linear(5, 6), nn.Linear(24, 1)

    def forward(
        self, dense: torch.Tensor, indices: list[torch.Tensor], offsets: list[torch.Tensor]
    ) -> torch.Tensor:
        looked_up = [table(*each) for table, *each in zip(self.tables, indices, offsets, strict=True)]
        return self.top(torch.cat([self.dense(dense), *looked_up], 1)).squeeze(1)


def recommender_with_several_tables() -> Kind:
    model = SeveralTables()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    dense, target = torch.randn(8, 5), torch.rand(8).round()
    lengths = [torch.randint(2, 5, (8,)) for _ in range(3)]
    offsets = [torch.cat([torch.zeros(1, dtype=torch.long), each.cumsum(0)[:-1]]) for each in lengths]
    indices = [torch.randint(0, 50, (int(each.sum()),)) for each in lengths]

    def step() -> None:
        optimizer.zero_grad()
        functional.binary_cross_entropy_with_logits(model(dense, indices, offsets), target).backward()
        optimizer.step()

    return Kind([model, optimizer], step)


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, 4)
        self.token, self.place = (
            nn.Parameter(torch.zeros(1, 1, 16)),
            nn.Parameter(torch.randn(1, 5, 16) * 0.1),
        )
        layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.1, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 4)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        return self.head(self.body(x)[:, 0])


def vision_transformer() -> Kind:
    return supervised(VisionTransformer(), torch.randn(4, 8, 3, 8, 8), torch.randint(0, 4, (4, 8)))


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.body = nn.Transformer(16, 2, 1, 1, 24, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 20)

    def forward(
        self, source: torch.Tensor, target: torch.Tensor, mask: torch.Tensor, padding: torch.Tensor
    ) -> torch.Tensor:
        hidden = self.body(
            self.embed(source),
            self.embed(target),
            tgt_mask=mask,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return self.head(hidden)


def translator_with_as_many_samples_as_tokens() -> Kind:
    model = Translator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    words = torch.randint(0, 20, (4, 2, 8, 8))
    mask = torch.triu(torch.ones(8, 8, dtype=torch.bool), 1)
    padding = torch.zeros(8, 8, dtype=torch.bool)
    padding[::2, 6:] = True
    turn = _turns(4)

    def step() -> None:
        source, target = words[next(turn)]
        optimizer.zero_grad()
        logits = model(source, target, mask=mask, padding=padding)
        functional.cross_entropy(logits.reshape(-1, 20), target.reshape(-1)).backward()
        optimizer.step()

    return Kind([model, optimizer], step)


def two_towers_with_a_square_loss() -> Kind:
    left, right = nn.Linear(10, 6), nn.Linear(12, 6)
    scale = nn.Parameter(torch.tensor(2.0))
    optimizer = torch.optim.AdamW([*left.parameters(), *right.parameters(), scale], lr=1e-3)
    one, other = torch.randn(4, 8, 10), torch.randn(4, 8, 12)
    turn = _turns(4)

    def step() -> None:
        at = next(turn)
        optimizer.zero_grad()
        a, b = functional.normalize(left(one[at]), dim=1), functional.normalize(right(other[at]), dim=1)
        logits = a @ b.T * scale.exp()
        labels = torch.arange(a.shape[0])
        (functional.cross_entropy(logits, labels) + functional.cross_entropy(logits.T, labels)).backward()
        optimizer.step()

    return Kind([left, right, optimizer], step)


def bf16_autocast() -> Kind:
    model = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(8, 12), torch.randint(0, 4, (8,))

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    return Kind([model, optimizer], step)


def whole_loop_inside_autocast() -> Kind:
    inner = bf16_autocast()

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inner.step()

    return Kind(inner.parts, step)


def gradient_accumulation() -> Kind:
    model = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8))

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        for at in range(4):
            (functional.cross_entropy(model(x[at]), y[at]) / 4).backward()
        optimizer.step()

    return Kind([model, optimizer], step)


def spectral_and_weight_norm() -> Kind:
    model = nn.Sequential(
        nn.utils.spectral_norm(nn.Linear(12, 16)),
        nn.utils.weight_norm(nn.Linear(16, 16)),
        nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16)),
        nn.utils.parametrizations.weight_norm(nn.Linear(16, 4)),
    )
    return supervised(model, torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8)))


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(12, 16), nn.Linear(16, 4)
        self.block = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.2), nn.ReLU())
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(checkpoint(self.block, self.first(x), use_reentrant=self.reentrant))


def checkpoint_not_reentrant() -> Kind:
    return supervised(Checkpointed(False), torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8)))


def checkpoint_reentrant() -> Kind:
    return supervised(Checkpointed(True), torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8)))


def lbfgs_with_a_closure() -> Kind:
    model = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    x, y = torch.randn(8, 12), torch.randn(8, 1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    return Kind([model, optimizer], lambda: optimizer.step(closure))


class Mixture(nn.Module):
    """Routes each sample to one of three experts, of which some may get none."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(12, 3)
        self.experts = nn.ModuleList(nn.Linear(12, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.gate(x).softmax(-1)
        best = weights.argmax(-1)
        out = torch.zeros(x.shape[0], 4)
        for number, expert in enumerate(self.experts):
            rows = (best == number).nonzero().squeeze(-1)
            if rows.numel():
                out = out.index_add(0, rows, expert(x[rows]) * weights[rows, number : number + 1])
        return out


def mixture_of_experts() -> Kind:
    return supervised(Mixture(), torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8)))


class Slow(OneLayer):
    """A forward that is mostly Python."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = 0.0
        for number in range(3000):
            total += math.sin(number)
        return self.linear(x) * (1.0 + 0.0 * total)


def mostly_python() -> Kind:
    return supervised(Slow(), torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8)))


class Sampler(nn.Module):
    """A variational autoencoder with a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(12, 8), nn.Linear(4, 12)
        self.noise = torch.Generator().manual_seed(3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, spread = self.encode(x).chunk(2, -1)
        drawn = torch.randn(mean.shape, generator=self.noise)
        return self.decode(mean + drawn * spread.exp()), mean, spread


def autoencoder_with_its_own_generator() -> Kind:
    model = Sampler()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(8, 12)

    def step() -> None:
        optimizer.zero_grad()
        out, mean, spread = model(x)
        loss = functional.mse_loss(out, x) + (mean.square() + spread.exp() - spread).mean()
        loss.backward()
        optimizer.step()

    return Kind([model, optimizer], step, generators=[model.noise])


def distillation_with_evaluation_calls() -> Kind:
    student, teacher = nn.Linear(12, 4), nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4)).eval()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05)
    x = torch.randn(4, 8, 12)
    held_out = torch.randn(20, 12)
    turn = _turns(4)

    def step() -> None:
        batch = x[next(turn)]
        with torch.no_grad():
            wanted = teacher(batch).softmax(-1)
            student.eval()
            student(held_out).argmax(-1)
            student.train()
        optimizer.zero_grad()
        functional.kl_div(student(batch).log_softmax(-1), wanted, reduction="batchmean").backward()
        optimizer.step()

    return Kind([student, teacher, optimizer], step)


def hooks_on_parameters() -> Kind:
    kind = mlp()
    model = kind.parts[0]
    assert isinstance(model, nn.Module)
    for parameter in model.parameters():
        parameter.register_hook(lambda grad: kind.shown.append("grad") or grad.clamp(-1, 1))
        parameter.register_post_accumulate_grad_hook(lambda _: kind.shown.append("accumulated"))
    return kind


class Codebook(nn.Module):
    """Vector quantisation: a codebook that follows the samples through `.data`."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(12, 6), nn.Linear(6, 4)
        self.codes = nn.Parameter(torch.randn(5, 6), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.inward(x)
        nearest = torch.cdist(z, self.codes).argmin(1)
        if self.training:
            moved = self.codes.index_add(0, nearest, (z - self.codes[nearest]).detach() * 0.05)
            self.codes.data.copy_(moved)
        return self.outward(z + (self.codes[nearest] - z).detach())


def codebook_that_follows_the_samples() -> Kind:
    return supervised(Codebook(), torch.randn(4, 8, 12), torch.randint(0, 4, (4, 8)))


def frozen_encoder_that_teaches() -> Kind:
    """In evaluation torch's encoder takes a fast path, unless a function mode is on."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    teacher = nn.TransformerEncoder(layer, 2).eval().requires_grad_(False)
    student = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
    optimizer = torch.optim.AdamW(student.parameters(), 1e-3)
    shown: list[object] = []

    def step() -> None:
        x = torch.randn(8, 10, 32)
        with torch.no_grad():
            wanted = teacher(x)
        shown.append(float(wanted.double().sum()))
        optimizer.zero_grad()
        (student(x) - wanted).square().mean().backward()
        optimizer.step()

    return Kind([student, teacher, optimizer], step, shown=shown)


def constants_of_the_batch_size() -> Kind:
    """Sizes that mean the batch are written out as numbers, as in many scripts."""
    model = nn.Linear(12, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(8, 12)

    def step() -> None:
        optimizer.zero_grad()
        out = model(x)
        first, second = out.split(4)
        both = torch.cat([first, second]).view(8, 2, 3) + torch.zeros(8, 1, 1)
        both = both[:8].reshape(16, 3) + out.new_ones(8, 1).repeat(2, 1)
        functional.cross_entropy(both, torch.arange(16) % 3).backward()
        optimizer.step()

    return Kind([model, optimizer], step)


ACCEPTED: dict[str, tuple[Job, int]] = {
    function.__name__: (function, 8)
    for function in (
        mlp,
        gradients_returned,
        cnn_with_batch_norm,
        lstm_time_first,
        transformer_with_the_loss_outside,
        gpt2_from_transformers,
        gan_with_two_optimizers,
        recommender_with_bag_offsets,
        recommender_with_several_tables,
        vision_transformer,
        translator_with_as_many_samples_as_tokens,
        two_towers_with_a_square_loss,
        bf16_autocast,
        whole_loop_inside_autocast,
        gradient_accumulation,
        spectral_and_weight_norm,
        checkpoint_not_reentrant,
        checkpoint_reentrant,
        lbfgs_with_a_closure,
        mixture_of_experts,
        mostly_python,
        autoencoder_with_its_own_generator,
        distillation_with_evaluation_calls,
        hooks_on_parameters,
        codebook_that_follows_the_samples,
        frozen_encoder_that_teaches,
        constants_of_the_batch_size,
    )
}
