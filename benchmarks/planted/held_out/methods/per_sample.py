"""Differential privacy by `torch.func`: gradients of each sample by vmap, clipped, averaged, made noisy."""

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(batch=8, width=12, layers=3)
def main(loop: Loop, args: Knobs) -> None:
    batch, width = loop.size(args.batch, 1), loop.size(args.width, 2)
    layers = [layer for _ in range(args.layers) for layer in (nn.Linear(width, width), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(width, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, labels = torch.randn(batch, width), torch.arange(batch) % 3

    def loss_of(weights: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        scores = functional_call(model, weights, (one[None],))
        return nn.functional.cross_entropy(scores, label[None])

    each = vmap(grad(loss_of), in_dims=(None, 0, 0))
    for _ in loop:
        grads = each({name: weight.detach() for name, weight in model.named_parameters()}, x, labels)
        norms = torch.stack([one.flatten(1).norm(dim=1) for one in grads.values()]).norm(dim=0)
        scale = (1.0 / (norms + 1e-6)).clamp(max=1.0)
        for name, weight in model.named_parameters():
            clipped = torch.einsum("n,n...->...", scale, grads[name])
            weight.grad = (clipped + 0.1 * torch.randn_like(clipped)) / batch
        optimizer.step()
        loop.mark("model")
