"""What a probe holds in memory: nothing where that is short, no evaluation, no more than a share."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

from autobrrr.injected.batch_probe import probe_task
from autobrrr.injected.batch_probe import step_recorder as recording
from autobrrr.injected.batch_probe.step_recorder import Recorder
from autobrrr.injected.job_state.state_guard import StateGuard
from autobrrr.injected.live_torch.torch_types import Abstain
from support.batch_probe.shadow import mlp
from support.batch_probe.shadow_loop import Kind, train

pytestmark = pytest.mark.integration

CALL = nn.Module.__call__


def test_nothing_is_called_where_memory_is_short_of_the_copies_that_the_proof_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 3 kB\n")
    monkeypatch.setattr(probe_task, "_ROOT", tmp_path)
    guards: list[int] = []
    monkeypatch.setattr(StateGuard, "__enter__", lambda _: guards.append(1))
    outcome = train(mlp, 30, probe=True)
    assert outcome.probed is not None
    assert outcome.probed["status"] == "abstained"
    assert "MiB are free" in str(outcome.probed["why"])
    assert not guards


def evaluating(model: nn.Module, batches: int) -> tuple[int, bool]:
    """Bytes of the batches that live on after an evaluation in a recorded step; whether it was seen."""
    alive = weakref.WeakSet()
    recorder = Recorder(torch, frozenset(map(id, model.parameters())))
    recorder.start()
    model(torch.randn(4, 1000)).sum().backward()
    model.eval()
    with torch.no_grad():
        for _ in range(batches):
            batch = torch.randn(2000, 1000)
            alive.add(batch)
            model(batch).argmax(1)
    del batch
    held = sum(each.numel() * each.element_size() for each in alive)
    seen = recorder.another_may_do
    recorder.abandon()
    return held, seen


def test_an_evaluation_in_the_recorded_step_is_let_go_of() -> None:
    assert evaluating(nn.Linear(1000, 1000), 40) == (0, True)
    held, seen = evaluating(nn.Linear(1000, 1000), 1)
    assert held > 0
    assert not seen, "a small one is walked over by the tape"


def test_a_recording_holds_no_more_than_a_share_of_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 4096 kB\n")
    monkeypatch.setattr(recording, "_ROOT", tmp_path)
    recorder = Recorder(torch)
    recorder.start()
    model = nn.Linear(1000, 1000)
    model(torch.randn(400, 1000)).sum().backward()
    with pytest.raises(Abstain, match="more than 1 MiB of memory"):
        recorder.stop()


def test_a_step_after_an_evaluation_is_recorded_in_its_place() -> None:
    evaluations: list[int] = []

    def job() -> Kind:
        model = nn.Linear(1000, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def step() -> None:
            recorded = nn.Module.__call__ is not CALL
            if recorded and not evaluations:
                evaluations.append(1)
                model.eval()
                with torch.no_grad():
                    for _ in range(12):
                        model(torch.randn(2000, 1000))
                model.train()
            optimizer.zero_grad()
            model(torch.randn(8, 1000)).square().mean().backward()
            optimizer.step()

        return Kind([model, optimizer], step)

    outcome = train(job, 60, probe=True)
    assert evaluations
    assert outcome.probed is not None
    assert outcome.probed["status"] == "ok", outcome.probed["why"]
