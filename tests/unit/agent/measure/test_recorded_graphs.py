"""Graphs that nothing uses, and graphs that outlive their steps, are told by the line that records them."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from autobrrr.agent.live_torch.module_call_slot import SLOT
from autobrrr.agent.measure import recorded_graphs
from autobrrr.agent.measure.code_sites import Stacks
from autobrrr.agent.measure.recorded_graphs import RecordedGraphs
from support.agent import fail

X = torch.ones(4, 8)
STEPS, LOOKS = 16, 10_000


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


class Forces(nn.Sequential):
    """It takes a gradient within its forward: evaluated under no_grad, it raises."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        return torch.autograd.grad(super().forward(x).sum(), x, create_graph=True)[0]


class Trained:
    """Two models and their optimizers, trained step by step under the phase hooks."""

    def __init__(self) -> None:
        self.model, self.other, self.forces = net(), net(), Forces(*net())
        self.members = [net() for _ in range(5)]
        self.models = [self.model, self.other, self.forces, *self.members]
        self.optimizers = [torch.optim.SGD(one.parameters(), 1e-3) for one in self.models]
        self.criterion = nn.MSELoss()
        self.kept: list[torch.Tensor] = []
        self.features: list[torch.Tensor] = []

    def judge(self, fake: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.criterion(self.other(fake), torch.zeros(4, 8)))

    def learn(self, loss: torch.Tensor) -> None:
        for one in self.optimizers:
            one.zero_grad()
        loss.backward()
        for one in self.optimizers:
            one.step()


Step = Callable[[Trained], object]


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_graphs, "MOST_NS", 1 << 62)  # stacks under pytest are deep


def told(step: Step) -> dict[str, tuple[int, str]]:
    """What is told after some steps, without the lines."""
    job = Trained()
    loop = SimpleNamespace(
        torch=torch,
        job=SimpleNamespace(
            roots=list[nn.Module](),
            optimizers=job.optimizers,
            updated=[each for one in job.models for each in one.parameters()],
        ),
        hot=SimpleNamespace(live=True, steps=0),
        measuring=SimpleNamespace(posted_ns=0),
        left=[],
        fail=fail,
        is_compiled=lambda: False,
    )
    engine = torch.autograd._engine_run_backward
    graphs = RecordedGraphs(loop)  # type: ignore[arg-type]
    with graphs.followed():
        loop.job.roots = [*job.models, *job.other, job.criterion]  # which the loop has found only now
        for loop.hot.steps in range(STEPS):
            graphs.keep_up()
            step(job)
    assert torch.autograd._engine_run_backward is engine
    assert not any(SLOT in vars(model) for model in job.models)
    found = (map(str, one.values()) for one in graphs.sites(LOOKS, Stacks()))
    return {what: (int(samples), where.split()[-1]) for what, where, samples in found}


def accumulates(job: Trained) -> None:
    for n in range(3):
        (job.model(X + n).mean() / 3).backward()
    job.optimizers[0].step()


def sums_losses(job: Trained) -> None:
    job.learn(torch.stack([job.model(X + n).mean() for n in range(3)]).sum())


def contrasts(job: Trained) -> None:
    one, two = job.model(X), job.model(X + 1)
    job.learn((one * two).mean())


def plays_gan(job: Trained) -> None:
    fake = job.model(X)
    job.learn(job.other(X).mean() - job.other(fake.detach()).mean())
    job.learn(job.other(fake).mean())


def acts(job: Trained) -> None:
    chosen = []
    for n in range(4):
        with torch.no_grad():
            value = job.other(X)
        chosen.append(torch.log_softmax(job.model(X + n), 1)[:, 0] * value.mean())
    job.learn(torch.stack(chosen).mean() + job.other(X).mean())


def act_alone(job: Trained) -> None:
    with torch.no_grad():
        for row in X:
            job.model(row[None])


def acts_alone(job: Trained) -> None:
    act_alone(job)
    job.learn(job.model(X).mean())


def trains_by_row(job: Trained) -> None:
    losses = []
    for x in (*X, *X):
        loss = job.model(x).mean()
        losses.append(loss)
    job.learn(torch.stack(losses).mean())


def carries_on(job: Trained) -> None:
    x = X[:1]
    for _ in range(8):
        x = job.model(x)
    job.learn(x.mean())


def takes_grad(job: Trained) -> None:
    for n in range(3):
        x = (X + n).requires_grad_()
        (x_grad,) = torch.autograd.grad(job.model(x).mean(), x)
    job.learn(job.model(X + x_grad).mean())


def reads_features(job: Trained) -> None:
    hook = job.model[0].register_forward_hook(lambda module, args, out: job.features.append(out))
    job.model(X)
    job.learn(job.features.pop().mean())
    hook.remove()


def skips_some(job: Trained) -> None:
    for n in range(4):
        loss = job.model(X + n).mean()
        if n % 4 == 3:
            job.learn(loss)


def has_frozen_teacher(job: Trained) -> None:
    for one in job.other.parameters():
        one.requires_grad_(False)
    job.learn(mse_loss(job.model(X), job.other(X)))


def window(job: Trained) -> None:
    loss = job.model(X).mean()
    job.learn(loss)
    job.kept = [*job.kept[-3:], loss]


def validates(job: Trained) -> None:
    validate(job)
    job.learn(job.model(X).mean())


def differentiates(job: Trained) -> None:
    for n in range(3):
        job.forces(X + n)
    job.learn(job.forces(X + 3).mean())


def prepares(job: Trained) -> None:
    job.kept = job.kept or [job.other[0].bias.clone()]  # all graphs begin there
    job.learn(job.model(X + job.kept[0]).mean())


def validate(job: Trained) -> float:
    return sum(call(job, n).mean().item() for n in range(3))


def shares_a_call(job: Trained) -> None:
    validate(job)
    job.learn(call(job).mean())


def call(job: Trained, shift: int = 3) -> torch.Tensor:
    return torch.as_tensor(job.model(X + shift))


def distills(job: Trained) -> None:
    job.learn(mse_loss(job.model(X), job.other(X).detach()))


def keeps_losses(job: Trained) -> None:
    loss = job.model(X).mean()
    job.learn(loss)
    job.kept.append(loss)


def adds_losses(job: Trained) -> None:
    out = job.model(X)
    job.learn(out.mean())
    job.kept = [0.99 * sum(job.kept) + (out**2).mean()]


def trains_critic(job: Trained) -> None:
    """Its loss goes back through the generator, which steps too."""
    fake = job.model(X)
    for n, loss in ((1, lambda: job.judge(fake)), (0, lambda: -job.judge(job.model(X)))):
        job.optimizers[n].zero_grad()
        loss().backward()
        job.optimizers[n].step()


def trains_both(job: Trained) -> None:
    """Both directions, with `Module.zero_grad`."""
    for own, x in ((1, job.model(X).detach()), (0, job.model(X))):
        job.models[own].zero_grad()
        job.other(x).mean().backward()
        job.optimizers[own].step()


def has_two_critics(job: Trained) -> None:
    """The first loss need not go through the generator; the second has to go through both critics."""
    fake = job.model(X)
    for own, loss in ((1, lambda: job.other(fake)), (0, lambda: job.other(fake) + job.members[0](fake))):
        job.optimizers[own].zero_grad()
        loss().mean().backward(retain_graph=True)
        job.optimizers[own].step()


def trains_actor(job: Trained) -> None:
    """Its critic is trained by layers, called one by one, and the actor's loss goes through it as a whole."""
    x = X
    for layer in job.other:
        x = layer(x)
    for own, loss in ((1, lambda: x), (0, lambda: job.other(job.model(X)))):
        job.optimizers[own].zero_grad()
        loss().mean().backward()
        job.optimizers[own].step()


def skips_update(job: Trained) -> None:
    """As a GradScaler does where gradients overflow."""
    for n in range(4):
        for one, optimizer in zip(job.models[:2], job.optimizers, strict=False):
            optimizer.zero_grad()
            one(X).mean().backward()
            if n == 2:
                optimizer.step()


def shares_backward(job: Trained) -> None:
    for one in job.optimizers:
        one.zero_grad()
    for _ in range(2):
        job.other(job.model(X)).mean().backward()
        nn.utils.clip_grad_norm_(job.model.parameters(), 1e-9)
    for one in job.optimizers:
        one.step()


def takes_turns(job: Trained) -> None:
    """Two losses, each of its own optimizer, over the same parameters."""
    job.optimizers[1].param_groups = job.optimizers[0].param_groups
    for optimizer in job.optimizers[:2]:
        optimizer.zero_grad()
        job.model(X).mean().backward()
        optimizer.step()


def trains_ensemble(job: Trained) -> None:
    for one in job.members:
        job.learn(one(X).mean())


def chains(job: Trained) -> None:
    x = X
    for one in job.members:
        x = one(x)
    job.learn(x.mean())


@pytest.mark.parametrize(
    "step",
    [
        sums_losses,
        contrasts,
        plays_gan,
        acts,
        takes_grad,
        reads_features,
        skips_some,
        carries_on,
        has_frozen_teacher,
        differentiates,
        prepares,
        window,
    ],
)
def test_what_an_ordinary_job_records_is_used_and_ends(step: Step) -> None:
    assert not told(step).keys() - {"without gradients"}


def test_calls_without_gradients_are_told_with_their_line() -> None:
    looks, told_at = told(acts)["without gradients"]
    assert (0 < looks < LOOKS, told_at) == (True, "acts")
    assert told(sums_losses) == {}
    looks, told_at = told(acts_alone)["calls by row"]
    assert (0 < looks < LOOKS, told_at) == (True, "act_alone")


def test_rows_that_one_backward_goes_through_are_told_by_the_call_of_each() -> None:
    looks, told_at = told(trains_by_row)["trains by row"]
    assert (0 < looks < LOOKS, told_at) == (True, "trains_by_row")


@pytest.mark.parametrize(
    ("step", "where"), [(validates, "call"), (shares_a_call, "<genexpr>"), (distills, "distills")]
)
def test_calls_outside_training_that_record_gradients_are_told(step: Step, where: str) -> None:
    found = told(step)
    looks, told_at = found.pop("unused graphs")
    assert not found
    assert told_at == where
    assert 0 < looks < LOOKS  # its part of the time


def test_gradients_of_another_optimizer_that_are_dropped_are_told() -> None:
    assert told(trains_both)["drops gradients"][1] == "trains_both"
    assert told(trains_actor).keys() == {"drops gradients"}
    assert told(has_two_critics).keys() == {"goes too far", "drops gradients"}
    both = told(
        trains_critic
    )  # the critic's loss need not go through the generator, but the generator's has to
    assert [both[what][1] for what in ("goes too far", "drops gradients")] == ["trains_critic"] * 2


def test_gradients_that_an_optimizer_uses_or_skips_are_no_waste() -> None:
    for step in (accumulates, skips_update, shares_backward, takes_turns):
        assert not told(step).keys() & {"drops gradients", "goes too far"}


def test_trained_networks_of_one_shape_are_told_where_none_needs_another() -> None:
    assert told(trains_ensemble)["twins"] == (5, "trains_ensemble")
    assert "twins" not in told(chains)


def test_no_call_waits_for_a_walk_through_a_deep_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_graphs, "MOST_NODES", 2)
    assert told(validates) == {}


def test_micro_batches_of_one_update_are_told() -> None:
    assert told(accumulates) == {"accumulates": (STEPS, "accumulates")}


@pytest.mark.parametrize("step", [keeps_losses, adds_losses])
def test_graphs_that_outlive_their_steps_are_told(step: Step) -> None:
    count, where = told(step)["kept graphs"]
    assert (count, where) == (STEPS - 9, step.__name__)
