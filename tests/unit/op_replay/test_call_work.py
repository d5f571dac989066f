"""The work of recorded operators is read from their shapes: operations, bytes, and what moves nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from autobrrr.op_replay import replay
from autobrrr.op_replay.call_work import fixed_calls, repeated_calls, unread_calls
from autobrrr.op_replay.step_record import read
from support.agent.recorded_steps import recorded

FLOAT = 4
A, B, FEW = torch.ones(64, 32), torch.ones(32, 16), torch.zeros(8, dtype=torch.int64)


def rows(program: Callable[[], object], folder: Path) -> dict[str, dict[str, Any]]:
    """The row of each operator that the program calls, by its name."""
    with torch.no_grad():
        recording = recorded(program, [], folder, 1)
    found = replay.replayed(torch, {**recording, "probe": False})
    assert found["probe"] is None
    return {row["op"].split(".")[1]: row for row in found["work"]}


@pytest.mark.parametrize(
    ("name", "program", "flops", "moved"),
    [
        ("mm", lambda: A @ B, 2 * 64 * 32 * 16, FLOAT * (64 * 32 + 32 * 16 + 64 * 16)),
        ("mv", lambda: A @ B[:, 0], 2 * 64 * 32, FLOAT * (64 * 32 + 32 + 64)),
        ("mul", lambda: A * A, 0, FLOAT * 3 * 64 * 32),
        ("mul", lambda: A * A[:1].expand(64, 32), 0, FLOAT * (2 * 64 * 32 + 32)),
        ("add_", lambda: torch.ones(64, 32).add_(A), 0, FLOAT * 3 * 64 * 32),
        ("zero_", lambda: torch.ones(64, 32).zero_(), 0, FLOAT * 64 * 32),
        ("copy_", lambda: torch.ones(64, 32).copy_(A), 0, FLOAT * 2 * 64 * 32),
        ("t", A.t, 0, 0),
        ("view", lambda: A.view(32, 64), 0, 0),
        ("empty", lambda: torch.empty(64), 0, 0),
        ("sum", A.sum, 0, FLOAT * (64 * 32 + 1)),
        ("_to_copy", A.double, 0, (4 + 8) * 64 * 32),
        ("embedding", lambda: nn.functional.embedding(FEW, A), 0, 2 * FLOAT * 8 * 32 + 8 * 8),
        (
            "convolution",
            lambda: nn.functional.conv2d(torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3)),
            2 * 2 * 4 * 3 * 9 * 36,
            FLOAT * (2 * 3 * 64 + 4 * 27 + 2 * 4 * 36),
        ),
    ],
)
def test_an_operator_does_what_its_shapes_say(
    name: str, program: Callable[[], object], flops: int, moved: int, tmp_path: Path
) -> None:
    found = rows(program, tmp_path)[name]
    assert (found["flops"], found["bytes"]) == (flops, moved)
    assert (found["alone_ns"] is not None) == (flops > 0)


MODEL, OTHER = (nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)) for _ in range(2))
WEIGHTS = [*MODEL.parameters(), *OTHER.parameters()]
X, Y, KEPT = torch.randn(64, 8), torch.randn(64, 1), [torch.zeros(64, 1)]
COUNTS = torch.zeros(2, dtype=torch.long)


def search() -> float:
    WEIGHTS[0].add_(1e-6)
    return (MODEL(X) - Y).pow(2).mean().item()


def acts_and_logs() -> torch.Tensor:
    value = MODEL(X)
    value.mean().item()
    return value.argmax(0)


@pytest.mark.parametrize(
    ("without_gradients", "products"),
    [
        (lambda: float(torch.linalg.norm(MODEL(X) - Y) / torch.linalg.norm(Y)), 2),
        (lambda: ((MODEL(X) > 0) == (Y > 0)).sum().item(), 2),
        (lambda: nn.functional.mse_loss(MODEL(X), Y).item() + OTHER(X).mean().item(), 4),
        (lambda: COUNTS.add_(torch.bincount((MODEL(X) > 0).flatten().long(), minlength=2)), 2),
        (lambda: None, 0),
        (lambda: OTHER(X), 0),  # a teacher's or a target network's: the loss needs it
        (lambda: KEPT.append(MODEL(X)), 0),
        (lambda: KEPT[0].copy_(MODEL(X)), 0),
        (lambda: KEPT[0].add_(MODEL(X)), 0),
        (lambda: MODEL(X[:1]).argmax(1).item(), 0),  # an action
        (acts_and_logs, 0),
        (search, 0),
    ],
)
def test_calls_of_which_only_a_metric_comes_are_unread(
    without_gradients: Callable[[], object], products: int, tmp_path: Path
) -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), 1e-6, foreach=True)

    def step() -> None:
        with torch.no_grad():
            given = without_gradients()
        optimizer.zero_grad()
        target = given if isinstance(given, torch.Tensor) and given.is_floating_point() else Y
        (MODEL(X) - target).pow(2).mean().backward()
        optimizer.step()

    calls = read(torch, recorded(step, WEIGHTS, tmp_path, 64)["trace"]).calls
    names = [call.name for call in calls]
    phases = ["optimizer" if name.startswith("aten::_foreach") else "other" for name in names]
    unread = unread_calls(calls, phases)
    assert sum("mm" in names[at] for at in unread) == products


IN_PLACE = nn.Sequential(nn.Linear(8, 32), nn.ReLU(inplace=True), nn.Linear(32, 1))
LIKE_X = torch.randn(64, 8)
mse = nn.functional.mse_loss


def target(*inputs: torch.Tensor, between: Callable[[], object] = lambda: None) -> torch.Tensor:
    """What a network says of each, which no gradient goes through."""
    found = torch.zeros(64, 1)
    with torch.no_grad():
        for one in inputs:
            found = found + IN_PLACE(one)
            between()
    return found


@pytest.mark.parametrize(
    ("loss", "products"),
    [
        (lambda: mse(MODEL(X), target(X, X, X)), 4),
        (lambda: mse(MODEL(X), Y) + mse(MODEL(X), -Y), 2),
        (lambda: mse(MODEL(X) + MODEL(LIKE_X), Y), 0),
        (lambda: mse(MODEL(X), target(LIKE_X, LIKE_X)), 0),  # it may be freed in between, and hold other data
        (lambda: mse(MODEL(nn.functional.dropout(X)) + MODEL(nn.functional.dropout(X)), Y), 0),
        (lambda: mse(MODEL(X), target(X, X, between=lambda: X.data.add_(0.0))), 0),
        (lambda: mse(MODEL(X), target(X, X, between=lambda: IN_PLACE[0].weight.add_(0.0))), 0),
        (lambda: mse(MODEL(X[:32]) + MODEL(X[32:]), Y[:32]), 0),
        (lambda: mse(MODEL(X * 2.0) + MODEL(X * 3.0), Y), 0),  # numbers aren't told apart
    ],
)
def test_what_a_step_computes_twice_of_the_same_is_repeated(
    loss: Callable[[], torch.Tensor], products: int, tmp_path: Path
) -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), 1e-6, foreach=True)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    weights = [*WEIGHTS, *IN_PLACE.parameters()]
    calls = read(torch, recorded(step, weights, tmp_path, 64)["trace"]).calls
    names = [call.name for call in calls]
    back = next(at for at, name in enumerate(names) if name.startswith("aten::mse_loss_backward"))
    phases = ["other" if at < back else "backward" for at in range(len(names))]
    assert sum("mm" in names[at] for at in repeated_calls(calls, phases)) == products


def test_what_vmap_hides_is_not_known_and_the_rest_of_the_step_is(tmp_path: Path) -> None:
    each = torch.func.vmap(torch.func.grad(lambda one: (one * one).sum()))
    found = rows(lambda: (A @ B, each(A)), tmp_path)
    assert found["mm"]["flops"] == 2 * 64 * 32 * 16
    assert found["mul"]["bytes"] is None


def training() -> tuple[Callable[[], None], list[torch.Tensor]]:
    model = nn.Sequential(nn.Embedding(100, 16), nn.LSTM(16, 24))
    head = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 4))
    parameters: list[torch.Tensor] = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        out, _ = model(torch.zeros(5, 3, dtype=torch.int64))
        nn.functional.cross_entropy(head(out).flatten(0, 1), torch.zeros(15, dtype=torch.int64)).backward()
        optimizer.step()

    return step, parameters


def test_a_whole_step_of_real_modules_is_read_without_a_gap(tmp_path: Path) -> None:
    step, parameters = training()
    table = replay.replayed(torch, {**recorded(step, parameters, tmp_path, 3), "probe": False})["work"]
    assert len(table) > 20
    assert all(row["flops"] is not None for row in table)
    (fused,) = [row for row in table if row["op"] == "aten._fused_adamw_.default"]
    size = FLOAT * sum(parameter.numel() for parameter in parameters)
    assert fused["bytes"] == pytest.approx(7 * size, rel=0.01)  # reads four lists, writes three
    assert [row["kernel_ns"] for row in table] == sorted((row["kernel_ns"] for row in table), reverse=True)


def test_times_are_those_of_steps_that_ran_the_same_and_else_what_such_an_operator_takes(
    tmp_path: Path,
) -> None:
    recording = {**recorded(lambda: (A @ B, A @ B, A * 2), [], tmp_path, 1), "probe": False}
    (took, times, held), *_ = recording["timed"]
    own = [(name, ns, 300 if name == "aten::mm" else 7, "forward", 0) for name, ns, *_ in times]
    for timed in ([(took, own, held)], [(took, [*own, own[0]], held)]):
        table = replay.replayed(torch, {**recording, "timed": timed})["work"]
        product = next(row for row in table if row["op"] == "aten.mm.default")
        assert (product["count"], product["kernel_ns"], product["phase"]) == (2, 600, "forward")
        assert product["shapes"] == "64x32 32x16"
        assert product["flops"] == 2 * 2 * 64 * 32 * 16


def test_what_no_weight_and_no_random_number_is_part_of_is_fixed(tmp_path: Path) -> None:
    step, weights = training()
    adjacency, data = torch.rand(8, 8), torch.rand(8, 8)

    def both() -> None:
        (adjacency / adjacency.sum(1, keepdim=True)) @ adjacency
        data[torch.randperm(8)].exp()
        step()

    program = read(torch, recorded(both, weights, tmp_path, 8)["trace"])
    found = fixed_calls(program.calls)
    names = [call.name.partition(".")[0] for at, call in enumerate(program.calls) if at in found]
    assert names[:3] == ["aten::sum", "aten::div", "aten::mm"]
    assert not {"aten::randperm", "aten::index", "aten::exp", "aten::addmm"} & {*names}
