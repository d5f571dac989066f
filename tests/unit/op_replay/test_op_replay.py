"""A recorded step runs again at other batch sizes, on made-up tensors, without any of the job's code."""

import os
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from autobrrr.agent.wire.recording import COLLATING
from autobrrr.op_replay import replay
from autobrrr.op_replay.player import CallPlayer, ReplayedStep
from autobrrr.op_replay.step_record import LOADING, StepValue, read
from autobrrr.sidecar.process import job_program, step_replayer
from support.agent.recorded_steps import recorded

Step = Callable[[], object]


class Attention(nn.Module):
    """Every size that may be mistaken for the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(50, 16), nn.Embedding(12, 16)
        self.qkv, self.head = nn.Linear(16, 48), nn.Linear(16, 50)

    def forward(self, x: Tensor) -> Tensor:
        batch, length = x.shape
        hidden = self.embed(x) + self.places(torch.arange(length))
        q, k, v = self.qkv(hidden).view(batch, length, 3, 4, 4).permute(2, 0, 3, 1, 4)
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        weights = (q @ k.transpose(-1, -2)).masked_fill(~mask, -1e9).softmax(-1)
        mixed = weights @ v + functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(hidden + mixed.transpose(1, 2).reshape(batch, length, -1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class OneByOne(nn.Module):
    def __init__(self, selects: bool) -> None:
        super().__init__()
        self.layer, self.selects = nn.Linear(8, 5), selects

    def forward(self, x: Tensor) -> Tensor:
        rows = [x[at] for at in range(len(x))] if self.selects else x
        return torch.stack([self.layer(row) for row in rows])


def stepper(model: nn.Module, x: Tensor, classes: int, *, mixed: bool = False) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    labels = torch.randint(0, classes, model(x).shape[:-1])

    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            loss = functional.cross_entropy(model(x).reshape(-1, classes), labels.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


def vision() -> nn.Module:
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(*layers, nn.Dropout(), nn.Linear(8, 5)).to(memory_format=torch.channels_last)


def enlarging() -> nn.Module:
    layers = (nn.Conv2d(3, 8, 3), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(8, 4, 3))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))


JOBS: dict[str, tuple[nn.Module, Tensor, int]] = {
    "tokens": (Attention(), torch.randint(0, 50, (6, 12)), 50),
    "recurrent": (Recurrent(), torch.randn(6, 7, 8), 5),
    "images": (vision(), torch.randn(6, 3, 9, 9).to(memory_format=torch.channels_last), 5),
    "images that are enlarged": (enlarging(), torch.randn(6, 3, 9, 9), 5),
}


@pytest.mark.parametrize(
    ("job", "mixed"), [*((job, False) for job in JOBS), ("tokens", True), ("images", True)]
)
def test_every_call_of_a_step_runs_again_at_twice_the_batch(job: str, mixed: bool, tmp_path: Path) -> None:
    model, x, classes = JOBS[job]
    batch = x.shape[0]
    recording = recorded(stepper(model, x, classes, mixed=mixed), list(model.parameters()), tmp_path, batch)
    program = read(torch, recording["trace"])
    player = CallPlayer(torch, program, batch)
    with torch.enable_grad():
        once, twice = ReplayedStep(player, batch), ReplayedStep(player, 2 * batch)
    assert player.failed == {}
    for value in program.values:
        if value.number in once.shapes:
            assert once.shapes[value.number] == value.shape
    owned = [value for value in program.values if value.weight]
    assert owned
    assert all(twice.shapes[value.number] == value.shape for value in owned)
    products = [call for call in program.calls if call.name == "aten::addmm"]
    rows = {
        (twice.shapes[call.outputs[0].number][0], call.outputs[0].shape[0])
        for call in products
        if call.outputs[0]
    }
    assert all(many == 2 * few for many, few in rows)


def test_a_tensor_whose_strides_are_those_of_a_vmap_is_contiguous(tmp_path: Path) -> None:
    model, x = Attention(), torch.randint(0, 50, (12, 8))
    recording = recorded(stepper(model, x, 50), list(model.parameters()), tmp_path, 12)
    player = CallPlayer(torch, read(torch, recording["trace"]), 12)
    seen = StepValue(number=-1, shape=(2, 3), stride=(1,), dtype="float32", item_bytes=4, given=True)
    assert player.make(seen, (2, 3)).stride() == (3, 1)


def test_twice_the_batch_is_told_with_memory_and_coverage(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 5))
    recording = recorded(stepper(model, torch.randn(512, 64), 5), list(model.parameters()), tmp_path, 512)
    told = replay.replayed(torch, recording)["probe"]
    assert (told["status"], told["batch"]) == ("ok", 512)
    assert [point["batch"] for point in told["points"]] == [256, 512, 1024]
    assert told["notes"] == ["100 % of operator time was replayed"]
    assert told["memory"]["peak_2x_bytes"] > 1.5 * told["memory"]["peak_bytes"]
    assert told["memory"]["largest_batch"] == 8 * 512  # more would fit, and nothing near it was measured


@pytest.mark.parametrize("job", ["tokens", "images that are enlarged"])
def test_a_batch_of_one_is_doubled_where_the_input_says_so(job: str, tmp_path: Path) -> None:
    model, x, classes = JOBS[job]
    recording = recorded(stepper(model, x[:1], classes), list(model.parameters()), tmp_path, 1)
    told = replay.replayed(torch, recording)["probe"]
    assert [point["batch"] for point in told["points"]] == [1, 2], told
    assert told["notes"] == ["100 % of operator time was replayed"]


def test_a_replay_that_memory_is_too_short_for_does_not_begin(tmp_path: Path) -> None:
    model = nn.Linear(1024, 1024, bias=False)  # with its state: 12 MiB
    recording = recorded(stepper(model, torch.randn(6, 1024), 1024), list(model.parameters()), tmp_path, 6)
    told = replay.replayed(torch, {**recording, "free_bytes": 24 << 20})
    assert told["probe"]["why"].startswith("a replay at 6 needs")
    assert {row["alone_ns"] for row in told["work"]} == {None}


@pytest.mark.parametrize("batch", [6, 1])
@pytest.mark.parametrize("selects", [False, True])
def test_samples_that_are_handled_one_by_one_are_refused(batch: int, selects: bool, tmp_path: Path) -> None:
    model = OneByOne(selects)
    recording = recorded(stepper(model, torch.randn(batch, 8), 5), list(model.parameters()), tmp_path, batch)
    told = replay.replayed(torch, recording)["probe"]
    assert "the step handles samples one by one" in told["why"]


def test_operators_of_the_jobs_own_lower_the_coverage(tmp_path: Path) -> None:
    model = nn.Linear(8, 5)
    recording = recorded(stepper(model, torch.randn(6, 8), 5), list(model.parameters()), tmp_path, 6)
    for node in recording["trace"]["nodes"]:
        for one in node["attrs"]:
            if one["name"] == "op_schema":
                one["value"] = (
                    one["value"].replace("aten::mm(", "own::mm(").replace("aten::sum.", "own::sum.")
                )
    for _, times, _ in recording["timed"]:
        times[:] = [(name, 50_000 if name == "aten::mm" else ns, *rest) for name, ns, *rest in times]
    told = replay.replayed(torch, recording)["probe"]
    assert told["status"] == "abstained"
    assert "this operator is not known here" in told["why"]


def test_a_step_may_run_whole_inside_of_its_update(tmp_path: Path) -> None:
    model, x = nn.Linear(8, 5), torch.randn(6, 8)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def closure() -> float:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss.item()

    recording = recorded(lambda: optimizer.step(closure), list(model.parameters()), tmp_path, 6)
    assert replay.replayed(torch, recording)["probe"]["notes"] == ["100 % of operator time was replayed"]


class SequenceFirst(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.head = inner, nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        attention = isinstance(self.inner, nn.MultiheadAttention)
        return self.head(self.inner(x, x, x)[0] if attention else self.inner(x)[0]).flatten(0, 1)


@pytest.mark.parametrize("inner", [nn.GRU(8, 8), nn.MultiheadAttention(8, 2)], ids=["gru", "attention"])
@pytest.mark.parametrize(("places", "batch"), [pytest.param(32, 4, marks=pytest.mark.integration), (4, 8)])
def test_the_batch_of_a_sequence_is_not_its_length(
    inner: nn.Module, places: int, batch: int, tmp_path: Path
) -> None:
    model = SequenceFirst(inner)
    step = stepper(model, torch.randn(places, batch, 8), 5)
    told = replay.replayed(torch, recorded(step, list(model.parameters()), tmp_path, places))["probe"]
    assert (told["status"], told["batch"]) == ("ok", batch), told


def test_python_that_takes_long_is_not_taken_for_fixed(tmp_path: Path) -> None:
    model = nn.Linear(8, 5)
    recording = recorded(stepper(model, torch.randn(6, 8), 5), list(model.parameters()), tmp_path, 6)
    recording["timed"] = [(step_ns, times, step_ns // 2) for step_ns, times, _ in recording["timed"]]
    assert (
        "Python between operators takes 50 % of the step" in replay.replayed(torch, recording)["probe"]["why"]
    )


def test_loading_grows_with_the_batch_where_its_items_are_told_apart(tmp_path: Path) -> None:
    model = nn.Linear(8, 5)
    recording = recorded(stepper(model, torch.randn(6, 8), 5), list(model.parameters()), tmp_path, 6)
    step_ns, times, _ = recording["timed"][0]
    loading = (LOADING, 9 * step_ns, 0, "other")
    for share, ratio in ((0, None), (0.1, 1.9), (0.5, None)):
        collating = [(COLLATING, int(share * 10 * step_ns), 0, "other")] if share else []
        recording["timed"] = [(10 * step_ns, [loading, *collating, *times], 0)]
        told = replay.replayed(torch, recording)["probe"]
        points = [min(point["shadow_ns"]) / recording["step_ns"] for point in told.get("points", [])]
        assert points[2:] == ([] if ratio is None else [pytest.approx(ratio, abs=0.12)]), told
        assert (
            ratio or f"{'collating takes 50' if share else 'loading takes 90'} % of the step" in told["why"]
        )


def test_data_that_lists_several_of_each_sample_grow_with_them(tmp_path: Path) -> None:
    table, head = nn.Embedding(50, 8), nn.Linear(8, 5)
    words, seen, labels = torch.randint(0, 50, (120,)), torch.randn(6, 8), torch.randint(0, 5, (6,))

    def step() -> None:
        pooled = seen + table(words).view(6, 20, 8).mean(1) + table(torch.tensor([3] * 6))
        functional.cross_entropy(head(pooled), labels).backward()

    recording = recorded(step, [*table.parameters(), *head.parameters()], tmp_path, 120)
    told = replay.replayed(torch, recording)["probe"]
    assert (told["batch"], told["notes"]) == (6, ["100 % of operator time was replayed"])


@pytest.mark.parametrize(
    ("program", "why"),
    [("import os; os.kill(os.getpid(), 19)", "training can't be paused for it now"), ("", "DecodeError")],
)
def test_a_replay_that_tells_nothing_is_answered_with_the_reason(
    program: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_program, "_PROGRAM", program)
    replayer, found = step_replayer.StepReplayer(os.getpid(), lambda call: call()), SimpleQueue[Any]()
    replayer.drain = lambda drained: drained({"ok": True, "drained": False})
    replayer.expect(True)
    replayer({"status": "ok"}, os.memfd_create("record"), found.put)
    assert f"step can't be replayed: {why}" in found.get(timeout=30).probe.why
