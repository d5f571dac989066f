"""A recurrent cell that Python unrolls over a short text, letter by letter, clipped and updated by AdamW."""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


class Letters(nn.Module):
    """Predicts the next letter."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed, self.cell, self.head = (
            nn.Embedding(30, width),
            nn.GRUCell(width, width),
            nn.Linear(width, 30),
        )

    def forward(self, letters: Tensor) -> Tensor:
        state = torch.zeros(letters.shape[0], self.cell.hidden_size)
        scores = []
        for at in range(letters.shape[1]):
            state = self.cell(self.embed(letters[:, at]), state)
            scores.append(self.head(state))
        return torch.stack(scores, 1)


@planted_job(width=24, batch=4, length=20)
def main(loop: Loop, args: Knobs) -> None:
    model = Letters(loop.size(args.width, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    text = torch.randint(0, 30, (loop.size(args.batch, 1), args.length + 1))
    for _ in loop:
        optimizer.zero_grad()
        scores = model(text[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())
        loop.mark("forward")
        loss.backward()
        loop.mark("backward")
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loop.mark("optimizer")
