"""Two networks and two optimizers in turns, both tiny."""

import torch
from torch import nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


def network(first: int, width: int, last: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(first, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2),
        nn.Linear(width, last),
    )  # fmt: skip


@planted_job(width=32, batch=16)
def main(loop: Loop, args: Knobs) -> None:
    width, batch = loop.size(args.width, 2), loop.size(args.batch, 1)
    noise, data = loop.size(8, 1), loop.size(16, 1)
    maker, judge = network(noise, width, data).to(loop.device), network(data, width, 1).to(loop.device)
    makes = torch.optim.Adam(maker.parameters(), lr=1e-4)
    judges = torch.optim.Adam(judge.parameters(), lr=1e-4)
    real = torch.randn(batch, data, device=loop.device)
    ones, zeros = torch.ones(batch, 1, device=loop.device), torch.zeros(batch, 1, device=loop.device)
    score = nn.functional.binary_cross_entropy_with_logits
    loop.works(flops=2 * batch * width * width * 14, traffic_bytes=4 * batch * width * 60)
    for _ in loop:
        judges.zero_grad()
        fake = maker(torch.randn(batch, noise, device=loop.device))
        (score(judge(real), ones) + score(judge(fake.detach()), zeros)).backward()
        judges.step()
        makes.zero_grad()
        score(judge(fake), ones).backward()
        makes.step()
        loop.mark("model")
