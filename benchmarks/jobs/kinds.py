"""Small trainings of common kinds, plain as people write them: `kinds.py gru --seconds 3`."""

import pace
import torch
from torch import nn
from torch.nn import functional as F


def mlp(width=96, depth=6):
    layers = [each for _ in range(depth) for each in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def classified(model, shape, optimizer, batch=32, **options):
    """A step that learns ten classes."""
    made = getattr(torch.optim, optimizer)(model.parameters(), **{"lr": 1e-3, **options})
    data, labels = torch.randn(batch, *shape), torch.randint(0, 10, (batch,))

    def step():
        made.zero_grad()
        F.cross_entropy(model(data), labels).backward()
        made.step()

    return step


class Recurrent(nn.Module):
    def __init__(self, cell, **options):
        super().__init__()
        self.cell = cell(24, 48, batch_first=True, **options)
        self.head = nn.LazyLinear(10)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


def recurrent(cell, **options):
    model = Recurrent(cell, **options)
    model(torch.randn(2, 20, 24))
    return classified(model, (20, 24), "Adam")


def conv():
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    return classified(
        nn.Sequential(*layers, nn.Flatten(), nn.Linear(32, 10)), (3, 24, 24), "SGD", momentum=0.9
    )


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Conv2d(12, 12, 3, padding=1) for _ in range(8))
        self.stem, self.head = nn.Conv2d(3, 12, 1), nn.Linear(12, 10)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + F.relu(block(x))
        return self.head(x.mean((2, 3)))


def decoder():
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.Embedding(500, 64), nn.TransformerEncoder(layer, 2), nn.Linear(64, 500))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, 500, (8, 33))

    def step():
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        F.cross_entropy(logits.reshape(-1, 500), tokens[:, 1:].reshape(-1)).backward()
        optimizer.step()

    return step


def autoencoder():
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 8), nn.Linear(8, 128), nn.ReLU())
    model.append(nn.Linear(128, 784))
    optimizer = torch.optim.Adam(model.parameters())
    data = torch.rand(64, 784)

    def step():
        optimizer.zero_grad(set_to_none=False)
        F.mse_loss(model(data), data).backward()
        optimizer.step()

    return step


def gan():
    maker, judge = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64)), mlp(64, 2)
    makes, judges = (torch.optim.Adam(each.parameters(), lr=2e-4) for each in (maker, judge))
    real = torch.randn(64, 64)

    def step():
        fake = maker(torch.randn(64, 16))
        judges.zero_grad()
        (F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()).backward()
        judges.step()
        makes.zero_grad()
        F.softplus(-judge(fake)).mean().backward()
        makes.step()

    return step


def ema():
    model, mean = mlp(), mlp()
    learn = classified(model, (96,), "AdamW")

    def step():
        learn()
        with torch.no_grad():
            for slow, fast in zip(mean.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.01)

    return step


class Tables(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(2000, 16) for _ in range(12))
        self.head = nn.Linear(12 * 16, 10)

    def forward(self, x):
        found = [table(x[:, i].long().abs() % 2000) for i, table in enumerate(self.tables)]
        return self.head(torch.cat(found, 1))


def norms():
    layers = [each for _ in range(8) for each in (nn.Linear(64, 64), nn.LayerNorm(64), nn.Dropout(0.1))]
    return classified(nn.Sequential(*layers, nn.Linear(64, 10)), (64,), "AdamW", batch=64)


def small_blocks():
    """The step is Python and dispatch."""
    layers = [each for _ in range(12) for each in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
    return classified(nn.Sequential(*layers, nn.Linear(64, 10)), (64,), "AdamW")


class Attention(nn.Module):
    def __init__(self, width=128, heads=4):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norms[1](x))


def small_batch_gpt():
    """Two sequences of 64 tokens."""
    model = nn.Sequential(nn.Embedding(256, 128), *(Attention() for _ in range(4)), nn.Linear(128, 256))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, 256, (2, 65))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def pointwise():
    """A gated recurrence on tensors of 36 MiB: the step moves memory."""
    gates = nn.ParameterList([nn.Parameter(torch.randn(1024) * 0.1) for _ in range(2)])
    optimizer = torch.optim.SGD(gates, lr=0.01)
    data = torch.randn(9216, 1024)

    def step():
        optimizer.zero_grad()
        state = data
        for gate in gates:
            state = state * torch.sigmoid(state + gate) * 0.9
        state.square().mean().backward()
        optimizer.step()

    return step


KINDS = {
    "adagrad": lambda: classified(mlp(), (96,), "Adagrad"),
    "autoencoder": autoencoder,
    "bilstm": lambda: recurrent(nn.LSTM, bidirectional=True),
    "conv": conv,
    "decoder": decoder,
    "ema": ema,
    "gan": gan,
    "gru": lambda: recurrent(nn.GRU, num_layers=2),
    "nadam": lambda: classified(mlp(), (96,), "NAdam"),
    "norms": norms,
    "pointwise": pointwise,
    "residual": lambda: classified(Residual(), (3, 16, 16), "AdamW", batch=16),
    "rmsprop": lambda: classified(mlp(), (96,), "RMSprop"),
    "small_batch_gpt": small_batch_gpt,
    "small_blocks": small_blocks,
    "sgd": lambda: classified(mlp(128, 10), (128,), "SGD", momentum=0.9),
    "tables": lambda: classified(Tables(), (12,), "Adam", batch=128),
    "wide_mlp": lambda: classified(mlp(1024, 3), (1024,), "AdamW", batch=1024),  # large operators
}

if __name__ == "__main__":
    args = pace.arguments(tuple(KINDS))
    torch.manual_seed(0)
    train = KINDS[args.kind]()
    for _ in pace.steps(args):
        train()
