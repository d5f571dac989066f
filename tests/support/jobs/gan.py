"""A GAN: two optimizers per iteration, four calls of two modules."""

import pace
import torch
from digest import fingerprint
from torch import nn

args = pace.parse()
generator = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32))
critic = nn.Sequential(nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(32, 1))
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-4)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4)
judge = nn.BCEWithLogitsLoss()
for _ in pace.steps(args):
    real = torch.randn(16, 32)
    fake = generator(torch.randn(16, 16))
    critic_optimizer.zero_grad()
    loss = judge(critic(real), torch.ones(16, 1)) + judge(critic(fake.detach()), torch.zeros(16, 1))
    loss.backward()
    critic_optimizer.step()
    generator_optimizer.zero_grad()
    judge(critic(fake), torch.ones(16, 1)).backward()
    generator_optimizer.step()
print("fingerprint", fingerprint(generator, critic, generator_optimizer, critic_optimizer), flush=True)
