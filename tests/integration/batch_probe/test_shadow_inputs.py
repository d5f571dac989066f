"""The shadow probe on batches in every kind of container, and on ranks that need each other."""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn

from support.batch_probe.shadow_inputs import ACCEPTED, REFUSED
from support.batch_probe.shadow_loop import Kind, told_by_two_ranks, train

pytestmark = pytest.mark.integration

STEPS = 48


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_batch_is_found_in_its_container_and_training_is_bitwise_the_same(name: str) -> None:
    make, batch = ACCEPTED[name]
    never, control = (train(make, STEPS, probe=False) for _ in range(2))
    assert never.fingerprint == control.fingerprint, "the job itself is not repeatable"

    probed = train(make, STEPS, probe=True)

    assert probed.fingerprint == never.fingerprint
    assert probed.probed is not None, probed.activities
    assert probed.probed["status"] == "ok", probed.probed["why"]
    assert probed.probed["batch"] == batch
    points = probed.probed["points"]
    assert [point["batch"] for point in points] == [batch // 4, batch // 2, batch, 2 * batch]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", REFUSED)
def test_batches_that_can_not_be_cut_by_sample_are_refused(name: str) -> None:
    make, reason = REFUSED[name]
    never = train(make, STEPS, probe=False)

    probed = train(make, STEPS, probe=True)

    assert probed.fingerprint == never.fingerprint
    assert probed.probed is not None
    assert probed.probed["status"] == "abstained"
    assert reason in str(probed.probed["why"])


def test_ranks_that_accumulate_without_sync_are_probed_and_sharded_ones_refused() -> None:
    told = told_by_two_ranks(_rank, 40_000 + os.getpid() % 20_000)
    for rank in range(2):
        for never, probed in told[rank][:2]:
            assert probed == never, rank
    status, why = told[0][2]
    assert (status, why) == ("ok", None)
    status, why = told[0][3]
    assert status == "abstained"
    assert "collective" in why, why


def _rank(rank: int, port: int, results: object) -> None:
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    data = torch.randn(4, 8, 12, generator=torch.Generator().manual_seed(rank))

    def accumulating() -> Kind:
        model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4))
        wrapped = nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step() -> None:
            optimizer.zero_grad()
            for at in range(3):
                with wrapped.no_sync():
                    wrapped(data[at]).square().mean().backward()
            wrapped(data[3]).square().mean().backward()
            optimizer.step()

        return Kind([model, optimizer], step)

    def sharded() -> Kind:
        model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4))
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step() -> None:
            optimizer.zero_grad()
            model(data[0]).square().mean().backward()
            optimizer.step()

        return Kind([optimizer], step)

    same, said = [], []
    for make in (accumulating, sharded):
        never = train(make, 40, probe=False)
        probed = train(make, 40, probe=rank == 0)  # the other rank knows nothing of it
        same.append((never.fingerprint, probed.fingerprint))
        said.append((probed.probed["status"], probed.probed["why"]) if probed.probed else None)
    results.put((rank, (*same, *said)))  # type: ignore[attr-defined]
    torch.distributed.destroy_process_group()
