"""A remedy is neither applied nor left on where the job would run out of the host's memory."""

from pathlib import Path

import pytest
import torch

from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.loop.train_loop import TrainLoop
from autobrrr.agent.remedies.active_remedies import ActiveRemedies
from autobrrr.agent.remedies.device_headroom import ANOTHER_S, SETTLED_S, MemoryWatch
from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import Refused, Remedy
from autobrrr.agent.wire.ring_writer import StepRing
from support.agent import remedies
from support.agent.memory_root import MIB, MemoryRoot
from support.agent.remedies import training
from support.simulated.bare_torch import bare_torch


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def remedy(name: str = "a", *, host_mib: int = 0) -> Remedy:
    return remedies.remedy(name, host_takes=lambda job: host_mib * MIB)


def guarded(root: MemoryRoot, *remedies: Remedy) -> tuple[ActiveRemedies, Clock]:
    active, clock = ActiveRemedies({each.name: each for each in remedies}, root.folder), Clock()
    active.memory = MemoryWatch(root.folder, clock)
    return active, clock


@pytest.mark.parametrize(
    ("used_mib", "host_mib", "why"),
    [
        (950, 0, "50 of 1000 MiB of memory are free; 10 % must be"),
        (600, 300, "it takes 300 MiB of memory, 400 MiB are free; half must stay free"),
        (600, 100, None),
    ],
)
def test_a_remedy_is_refused_where_memory_is_short(
    used_mib: int, host_mib: int, why: str | None, tmp_path: Path
) -> None:
    root = MemoryRoot(tmp_path, limit_mib=1000)
    root.use(used_mib)
    active, _ = guarded(root, remedy(host_mib=host_mib))
    if why is None:
        active.apply(Job(bare_torch()), "a", {})
        return
    with pytest.raises(Refused) as refused:
        active.apply(Job(bare_torch()), "a", {})
    assert str(refused.value) == why


def test_a_recipe_needs_no_more_than_its_remedies_take(tmp_path: Path) -> None:
    root = MemoryRoot(tmp_path, limit_mib=1000)
    root.use(950)
    active, _ = guarded(root, remedy(), remedy("b", host_mib=100))
    active.apply(Job(bare_torch()), "a", {}, planned=True)
    with pytest.raises(Refused, match="it takes 100 MiB"):
        active.apply(Job(bare_torch()), "b", {}, planned=True)


def test_a_remedy_that_takes_half_of_what_was_free_is_reverted(tmp_path: Path) -> None:
    root = MemoryRoot(tmp_path, limit_mib=1000)
    active, clock = guarded(root, remedy())
    for used_mib in (200, 400, 200):  # the job alone swings
        root.use(used_mib)
        clock.now_s += 1
        assert not active.look_at_memory()
    applied = active.apply(Job(bare_torch()), "a", {})
    for used_mib, is_short in ((400, False), (690, False), (710, True)):
        root.use(used_mib)
        clock.now_s += 1
        assert active.look_at_memory() is is_short
    ((found, why),) = active.troubles()
    assert found is applied
    assert why == "memory ran short: 600 MiB were free before it was on, 290 MiB with it"
    assert active.memory.peak_bytes == 710 * MIB
    active.undo(applied)
    assert not active.watched


def test_the_next_step_boundary_reverts_it_and_the_session_hears_why(tmp_path: Path) -> None:
    root, pages = MemoryRoot(tmp_path, limit_mib=1000), StepRing()
    told: list[dict[str, object]] = []
    active, clock = guarded(root, remedy())
    loop = TrainLoop(torch, pages, active, told.append)
    active.apply(loop.job, "a", {})
    root.use(600)
    clock.now_s += 1
    assert active.look_at_memory()
    loop._close(1)
    assert active.applied == []
    (lost,) = [event for event in told if event.get("event") == "remedy_lost"]
    assert str(lost["why"]).startswith("memory ran short")
    pages.close_fd()
    pages.release()


def test_the_newest_remedy_goes_first_and_an_older_one_only_if_that_did_not_help(tmp_path: Path) -> None:
    root = MemoryRoot(tmp_path, limit_mib=1000)
    active, clock = guarded(root, remedy("a"), remedy("b"))
    for name in ("a", "b"):
        active.apply(Job(bare_torch()), name, {})
    root.use(600)
    clock.now_s += ANOTHER_S
    for name in ("b", "a"):
        assert active.look_at_memory()
        ((found, _),) = active.troubles()
        assert found.remedy.name == name
        active.undo(found)
        clock.now_s += ANOTHER_S / 2
        assert not active.look_at_memory()
        clock.now_s += ANOTHER_S


def test_what_a_remedy_still_holds_after_its_revert_is_not_taken_for_the_jobs_own(tmp_path: Path) -> None:
    root = MemoryRoot(tmp_path, limit_mib=1000)
    active, clock = guarded(root, remedy())
    applied = active.apply(Job(bare_torch()), "a", {})
    root.use(450)
    active.undo(applied)
    clock.now_s += SETTLED_S / 2
    assert not active.look_at_memory()
    active.apply(Job(bare_torch()), "a", {})
    root.use(510)
    clock.now_s += 0.1
    assert active.look_at_memory()


def test_without_a_memory_group_the_peak_is_that_of_the_process(tmp_path: Path) -> None:
    active, clock = guarded(MemoryRoot(tmp_path), remedy())
    active.apply(Job(bare_torch()), "a", {})
    clock.now_s += 1
    assert not active.look_at_memory()
    assert active.memory.peak_bytes == 100 * MIB


@pytest.mark.parametrize("name", ["optimizer.foreach", "compile.default"])
def test_real_remedies_say_what_they_take(name: str, tmp_path: Path) -> None:
    root = MemoryRoot(tmp_path, limit_mib=1000)
    root.use(900)
    loop, another = training("Adam"), torch.nn.Linear(4096, 4096)  # 64 MiB
    if name == "optimizer.foreach":
        loop.job.saw_root(another)
    active = ActiveRemedies(REGISTRY, root.folder)
    with pytest.raises(Refused, match=r"it takes \d+ MiB of memory, 100 MiB are free"):
        active.apply(loop.job, name, {})
