"""The denoiser of a diffusion model: a small U-Net of 3 x 3 convolutions that guesses the noise in images."""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


class Denoiser(nn.Module):
    """One level down and up again, with a skip; shape [batch, channels, side, side]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.down = nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1)
        self.last = nn.Conv2d(3 * channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        high = self.first(x).relu()
        low = self.middle(self.down(high).relu()).relu()
        up = nn.functional.interpolate(low, scale_factor=2.0)
        return self.last(torch.cat([high, up], 1))


@planted_job(channels=48, side=32, batch=4)
def main(loop: Loop, args: Knobs) -> None:
    channels, side, batch = loop.size(args.channels, 1), loop.size(args.side, 4), loop.size(args.batch, 1)
    model = Denoiser(channels)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    images = torch.randn(batch, channels, side, side)
    # In units of c x c weights at full size: 1, 2 / 4, 4 / 4, 3; three times, less the first for its data.
    loop.works(flops=2 * batch * side * side * channels * channels * 9 * (3 * 5.5 - 1))
    for _ in loop:
        noise = torch.randn_like(images)
        share = torch.rand(batch, 1, 1, 1)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(share * images + (1 - share) * noise), noise)
        loop.learn(loss, optimizer)
