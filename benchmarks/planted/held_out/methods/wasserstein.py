"""A Wasserstein GAN: three steps of the critic, whose weights are clipped, then one of the generator."""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


@planted_job(width=24, batch=8, critics=3)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    generator = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))
    critic = nn.Sequential(
        nn.Linear(2, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, 1),
    )
    makes = torch.optim.RMSprop(generator.parameters(), lr=5e-5)
    judges = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
    for _ in loop:
        for _ in range(args.critics):
            judges.zero_grad()
            angle = torch.rand(batch) * 6.28
            real = torch.stack([angle.cos(), angle.sin()], 1)
            with torch.no_grad():
                fake = generator(torch.randn(batch, 4))
            (critic(fake).mean() - critic(real).mean()).backward()
            judges.step()
            for weight in critic.parameters():
                weight.data.clamp_(-0.01, 0.01)
        makes.zero_grad()
        (-critic(generator(torch.randn(batch, 4))).mean()).backward()
        makes.step()
        loop.mark("model")
