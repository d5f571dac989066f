"""A policy that acts 32 times without gradients for each update: pole balancing in plain Python."""

import math

import pace
import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(
    nn.Linear(4, 128),
    nn.Tanh(),
    nn.Linear(128, 128),
    nn.Tanh(),
    nn.Linear(128, 128),
    nn.Tanh(),
    nn.Linear(128, 2),
)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)


def act(state: tuple[float, float, float, float], push: int) -> tuple[float, float, float, float]:
    place, speed, angle, turn = state
    force = (10.0 if push else -10.0) + 0.05 * turn * turn * math.sin(angle)
    bend = (9.8 * math.sin(angle) - math.cos(angle) * force / 1.1) / (
        0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1)
    )
    drive = force / 1.1 - 0.05 * bend * math.cos(angle) / 1.1
    return place + 0.02 * speed, speed + 0.02 * drive, angle + 0.02 * turn, turn + 0.02 * bend


start = [(0.01 * each, 0.0, 0.02 - 0.01 * each, 0.0) for each in range(8)]
for _ in pace.steps(pace.arguments()):
    states, seen, taken, rewards = list(start), [], [], []
    for _ in range(32):
        with torch.no_grad():
            observed = torch.tensor(states)
            chosen = torch.distributions.Categorical(logits=policy(observed)).sample()
        seen.append(observed)
        taken.append(chosen)
        states = [act(state, push) for state, push in zip(states, chosen.tolist(), strict=True)]
        rewards.append(torch.tensor([1.0 - min(1.0, abs(state[2])) for state in states]))
    returns = torch.stack(rewards).flip(0).cumsum(0).flip(0)
    logits = policy(torch.stack(seen))
    chance = torch.distributions.Categorical(logits=logits).log_prob(torch.stack(taken))
    optimizer.zero_grad()
    (-(returns - returns.mean()) * chance).mean().backward()
    optimizer.step()
