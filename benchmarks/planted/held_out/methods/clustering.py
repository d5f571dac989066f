"""Deep clustering: an encoder is trained towards the nearest of its centroids, which follow by k-means."""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(points=2048, width=384, centroids=384)
def main(loop: Loop, args: Knobs) -> None:
    points, width, many = loop.size(args.points, 2), loop.size(args.width, 2), loop.size(args.centroids, 2)
    encoder = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=1e-3)
    centroids = torch.randn(many, width)
    x = torch.randn(points, width)
    # Five matmuls of the encoder and its gradients, one of all distances.
    loop.works(flops=2 * points * width * (5 * width + many))
    for _ in loop:
        optimizer.zero_grad()
        codes = encoder(x)
        with torch.no_grad():
            far = centroids.square().sum(1) - 2 * codes @ centroids.T
            nearest = far.argmin(1)
            counts = torch.bincount(nearest, minlength=many).clamp(min=1)[:, None]
            means = torch.zeros_like(centroids).index_add_(0, nearest, codes) / counts
            centroids.lerp_(means, 0.05)
        loss = (codes - centroids[nearest]).square().mean()
        loop.learn(loss, optimizer)
