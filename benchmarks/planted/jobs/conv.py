"""Convolutions with BatchNorm: many channels fill the core, few channels leave it underfilled."""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(channels=64, layers=3, batch=8, side=24, norm=1)
def main(loop: Loop, args: Knobs) -> None:
    channels, batch, side = loop.size(args.channels, 2), loop.size(args.batch, 2), loop.size(args.side, 4)
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1)]
    for _ in range(args.layers):
        layers += [nn.Conv2d(channels, channels, 3, padding=1)]
        layers += [nn.BatchNorm2d(channels)] if args.norm else []
        layers += [nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
    model = model.to(loop.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x = torch.randn(batch, 3, side, side, device=loop.device)
    labels = torch.randint(0, 10, (batch,), device=loop.device)
    pixels = batch * side * side
    loop.works(
        flops=2 * 9 * pixels * channels * (2 * 3 + 3 * args.layers * channels),
        traffic_bytes=4 * pixels * channels * args.layers * (6 + 5 + (16 if args.norm else 0)),
    )
    loop.train(optimizer, lambda: nn.functional.cross_entropy(model(x), labels))
