"""An actor and a critic with a step of an environment between their calls, in plain Python."""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


def net(width: int, out: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, out))


def turn(state: list[float], push: float, turns: int) -> list[float]:
    """A cart on a spring, in small steps."""
    x, speed, angle, spin = state
    for _ in range(turns):
        speed += 1e-4 * (push - x)
        x += 1e-4 * speed
        spin -= 1e-4 * (angle + 0.1 * speed)
        angle += 1e-4 * spin
    return [x, speed, angle, spin]


@planted_job(turns=30_000, width=64)
def main(loop: Loop, args: Knobs) -> None:
    actor, critic = net(args.width, 1), net(args.width, 1)
    optimizer = torch.optim.SGD([*actor.parameters(), *critic.parameters()], lr=1e-4)
    state = [0.1, 0.0, 0.2, 0.0]
    for _ in loop:
        optimizer.zero_grad()
        push: Tensor = actor(torch.tensor([state]))
        loop.mark("forward")
        state = turn(state, float(push.detach()), args.turns)
        loop.mark("host")
        worth: Tensor = critic(torch.tensor([state]))
        loss = (worth - push).square().mean()
        loop.learn(loss, optimizer)
