"""Small training loops of many kinds: each returns (step, things to fingerprint)."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def learns(model, optimizer, loss):
    """Most kinds: the gradients of a loss, and an update."""

    def step():
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step, (model, optimizer)


def dropout():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 4))
    return learns(
        model, torch.optim.AdamW(model.parameters()), lambda: model(torch.randn(8, 16)).square().mean()
    )


def convolution():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)

    def step():
        model(torch.randn(4, 3, 8, 8)).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step, (model, optimizer)


def lbfgs():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def step():
        x = torch.randn(12, 6)

        def closure():
            optimizer.zero_grad()
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)

    return step, (model, optimizer)


def _checkpointed(reentrant):
    model = nn.ModuleList([nn.Linear(8, 8), nn.Dropout(0.3), nn.Linear(8, 8)])

    def loss():
        x = torch.randn(4, 8, requires_grad=True)
        for layer in model:
            x = checkpoint(layer, x, use_reentrant=reentrant)
        return x.square().sum()

    return learns(model, torch.optim.Adam(model.parameters()), loss)


def checkpoint_reentrant():
    return _checkpointed(True)


def checkpoint_not_reentrant():
    return _checkpointed(False)


def amp():
    model = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 16))

    def loss():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(torch.randn(8, 16)).float().square().mean()

    return learns(model, torch.optim.AdamW(model.parameters()), loss)


def scaler():
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scale = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1000)
    count = [0]

    def step():
        count[0] += 1
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).square().mean()
        if count[0] % 7 == 0:
            loss = loss * float("inf")
        scale.scale(loss).backward()
        scale.step(optimizer)
        scale.update()

    return step, (model, optimizer)


def gan():
    generator, critic = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 1))
    opt_g = torch.optim.Adam(generator.parameters())
    opt_c = torch.optim.Adam(critic.parameters())

    def step():
        for _ in range(3):
            opt_c.zero_grad()
            (
                critic(torch.randn(6, 8)).mean() - critic(generator(torch.randn(6, 4)).detach()).mean()
            ).backward()
            opt_c.step()
        opt_g.zero_grad()
        (-critic(generator(torch.randn(6, 4))).mean()).backward()
        opt_g.step()

    return step, (generator, critic, opt_g, opt_c)


def lstm():
    model = nn.LSTM(6, 8, num_layers=2, dropout=0.2)
    return learns(
        model, torch.optim.RMSprop(model.parameters()), lambda: model(torch.randn(5, 3, 6))[0].square().sum()
    )


def sparse():
    model = nn.Embedding(50, 6, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters())
    return learns(model, optimizer, lambda: model(torch.randint(0, 50, (9,))).square().sum())


def by_hand():
    model = nn.Linear(8, 8)

    def step():
        model.zero_grad()
        model(torch.randn(4, 8)).square().sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.01 * parameter.grad)

    return step, (model,)


def loader():
    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            return torch.full((6,), float(index)), index % 2

    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.1), nn.Linear(8, 2))
    data = torch.utils.data.DataLoader(Numbers(), batch_size=10, shuffle=True, num_workers=2)

    def batches():
        while True:
            yield from data

    source = batches()

    def loss():
        x, y = next(source)
        return nn.functional.cross_entropy(model(x), y)

    return learns(model, torch.optim.SGD(model.parameters(), lr=0.001), loss)


def gradient_penalty():
    """WGAN-GP: the loss holds a gradient."""
    generator, critic = nn.Linear(3, 6), nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    opt_g, opt_c = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())

    def step():
        real, fake = torch.randn(5, 6), generator(torch.randn(5, 3)).detach()
        mixed = (torch.rand(5, 1) * (real - fake) + fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        opt_c.zero_grad()
        penalty = (slope.norm(dim=1) - 1).square().mean()
        (critic(fake).mean() - critic(real).mean() + 10 * penalty).backward()
        opt_c.step()
        opt_g.zero_grad()
        (-critic(generator(torch.randn(5, 3))).mean()).backward()
        opt_g.step()

    return step, (generator, critic, opt_g, opt_c)


def functional_gradients():
    """Per-sample gradients by torch.func; nothing calls backward."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def loss(parameters, x):
        return torch.func.functional_call(model, parameters, (x.unsqueeze(0),)).square().sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))

    def step():
        found = each({name: p.detach() for name, p in model.named_parameters()}, torch.randn(6, 4))
        for name, p in model.named_parameters():
            p.grad = found[name].clamp(-1, 1).mean(0)
        optimizer.step()

    return step, (model, optimizer)


def optimizer_in_backward():
    """Each parameter is updated as soon as its gradient is there."""
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
    optimizers = {p: torch.optim.Adam([p]) for p in model.parameters()}

    def update(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update)

    def step():
        model(torch.randn(5, 6)).square().mean().backward()

    return step, (model, *optimizers.values())


def scripted():
    model = torch.jit.script(nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    return learns(model, optimizer, lambda: model(torch.randn(5, 6)).square().mean())


KINDS = {
    kind.__name__: kind
    for kind in (
        dropout,
        convolution,
        lbfgs,
        checkpoint_reentrant,
        checkpoint_not_reentrant,
        amp,
        scaler,
        gan,
        lstm,
        sparse,
        by_hand,
        loader,
    )
}


STRANGE = {
    kind.__name__: kind for kind in (gradient_penalty, functional_gradients, optimizer_in_backward, scripted)
}
