"""A job that trains one model after the other, as in cross-validation: each is found."""

from __future__ import annotations

import torch

from autobrrr.agent.loop.train_loop import TrainLoop

FOLDS, STEPS = 6, 300


def trained(loop: TrainLoop) -> torch.nn.Module:
    """One model, each of whose steps is sampled."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        loop.bursts.ask(4, 4, 0, budget=1e9)  # each step is sampled
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    return model


def test_each_model_that_a_job_trains_one_after_the_other_is_found(loop: TrainLoop) -> None:
    found = []
    for _ in range(FOLDS):
        model = trained(loop)
        found.append(loop.job.roots == [model])
    assert found == [True] * FOLDS


def test_the_forward_of_each_of_them_is_timed(loop: TrainLoop) -> None:
    """A model often lies where the one before it lay, and is another all the same."""
    timed = []
    for _ in range(2 * FOLDS):
        model = trained(loop)
        timed.append(loop.last_sample[2] > 0)
        del model  # before the next is made
    assert timed == [True] * len(timed)
