"""Bursts, patches, the tap and the looks at frames, each by itself."""

import sys
from typing import Any

import numpy as np
import pytest
import torch

from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.loop.step_hook import Hot, make_tap
from autobrrr.agent.measure.stack_sampler import Place, look_at
from autobrrr.agent.phases.batch_shapes import batch_size
from autobrrr.agent.phases.loader_watch import LoaderWatch
from autobrrr.agent.phases.sampling_schedule import BUDGET, Bursts


@pytest.mark.parametrize("step_ns", [100_000, 1_000_000, 20_000_000, 1_000_000_000])
def test_sampling_stays_within_its_budget_whatever_the_step(step_ns: int) -> None:
    bursts = Bursts()
    count = 20_000
    sampled = [bursts.wants(seq, step_ns) for seq in range(count)]
    bursts_begun = sum(now and not before for before, now in zip([False, *sampled], sampled, strict=False))
    one_burst = bursts.steps * bursts.cost_ns + (bursts.steps + 1) * bursts.boundary_ns
    spent = bursts_begun * one_burst
    assert sum(sampled) >= bursts.steps
    assert spent <= 1.1 * BUDGET * count * step_ns + one_burst
    assert sum(sampled) <= count / 2


def test_a_cadence_that_is_asked_for_is_only_made_sparser() -> None:
    bursts = Bursts()
    bursts.ask(100, 3, 0)
    assert [seq for seq in range(210) if bursts.wants(seq, 1_000_000_000)] == [
        0,
        1,
        2,
        100,
        101,
        102,
        200,
        201,
        202,
    ]
    bursts.ask(8, 4, 210)
    assert bursts.spacing(100_000) > 8


def test_long_steps_are_sampled_at_once_and_short_ones_after_a_rest() -> None:
    short, long = Bursts(), Bursts()
    for bursts, step_ns in ((short, 1_000_000), (long, 300_000_000)):
        bursts.rest(20, 8, step_ns)
    assert [seq for seq in range(20, 32) if short.wants(seq, 1_000_000)] == [28, 29, 30, 31]
    assert [seq for seq in range(20, 32) if long.wants(seq, 300_000_000)] == [20, 21, 22, 23, 28, 29, 30, 31]


class Fires:
    """An optimizer and a clock for the tap."""

    def __init__(self) -> None:
        self.now = 1000
        self.hot = Hot(900)
        self.hot.anchor, self.hot.left = id(self), 3
        self.slow: list[int] = []
        self.failed: list[BaseException] = []
        self.original: list[object] = []
        self.tap = make_tap(self.hot, self.original.append, self.go_slow, self.failed.append, self.clock)

    def clock(self) -> int:
        self.now += 10
        return self.now

    def go_slow(self, _: object, now: int) -> None:
        self.slow.append(now)


def test_plain_steps_are_noted_until_the_slow_way_is_due() -> None:
    fires = Fires()
    for _ in range(5):
        fires.tap(fires)
    assert fires.hot.times == [1010, 1020, 1030]
    assert fires.hot.steps == 3
    assert fires.slow == [1040, 1050]


def test_an_error_of_ours_is_reported_and_the_original_called_all_the_same() -> None:
    fires = Fires()

    def wrong(*_: object) -> None:
        raise ValueError("planted")

    make_tap(fires.hot, fires.original.append, wrong, fires.failed.append, fires.clock)(object())
    assert isinstance(fires.failed[0], ValueError)
    assert len(fires.original) == 1


def test_batch_sizes_are_found_where_batches_keep_them() -> None:
    assert batch_size((torch.zeros(8, 3),)) == 8
    assert batch_size((), {"input_ids": np.zeros((4, 9))}) == 4
    assert batch_size(({"x": [torch.zeros(5)]},)) == 5
    assert batch_size((torch.zeros(()), "text", torch.zeros(6, 2))) == 6
    assert batch_size(("text", 3)) == -1


def test_a_queue_is_empty_only_if_the_next_batch_has_not_come_either() -> None:
    class Queue:
        def __init__(self) -> None:
            self.queue: list[int] = []

    class Iterator:
        def __init__(self) -> None:
            self._num_workers, self._prefetch_factor = 2, 2
            self._task_info: dict[int, tuple[int, ...]] = {3: (0,)}
            self._rcvd_idx = 3
            self._data_queue = Queue()

    iterator = Iterator()
    watch = LoaderWatch(Job(torch))
    assert watch.queue_empty() is None
    watch.found(iterator)
    assert watch.queue_empty() is True
    iterator._task_info[3] = (0, 99)
    assert watch.queue_empty() is False
    iterator._task_info[3] = (0,)
    iterator._data_queue.queue.append(1)
    assert watch.queue_empty() is False
    del iterator._data_queue
    assert watch.queue_empty() is None


def test_a_place_is_the_innermost_frame_of_the_users_own_code() -> None:
    code = compile("def users(call):\n    return call()\n", "/home/somebody/train.py", "exec")
    names: dict[str, object] = {}
    exec(code, names)
    inner = compile(
        "def wrapper(look):\n    return look()\n", "/x/site-packages/torch/optim/optimizer.py", "exec"
    )
    exec(inner, names)
    wrapper, users = names["wrapper"], names["users"]
    line = sys._getframe().f_lineno + 1
    found = users(lambda: wrapper(lambda: look_at(sys._getframe(1), ("/usr/lib/",)).place))  # type: ignore[operator]
    assert found == (f"{__file__.rsplit('/', 1)[-1]}:{line} <lambda>", "optimizer", False, False, "", True)


def test_the_users_code_that_an_optimizer_calls_is_no_work_of_the_optimizers() -> None:
    names: dict[str, Any] = {}
    for file, name in (
        ("/x/site-packages/torch/optim/adam.py", "step"),
        ("/x/site-packages/torch/optim/optimizer.py", "wrapper"),
        ("/home/somebody/train.py", "own"),
    ):
        exec(compile(f"def {name}(*calls):\n    return calls[0](*calls[1:])\n", file, "exec"), names)
    wrapper, step, own = (names[name] for name in ("wrapper", "step", "own"))

    def look() -> Place:
        return look_at(sys._getframe(), ("/usr/lib/", __file__)).place

    assert own(wrapper, step, look)[1] == "optimizer"
    assert own(wrapper, step, own, look)[1] == "other"
    assert own(wrapper, own, look)[1] == "optimizer", "an optimizer of the user's own"


def test_a_place_in_a_collective_is_told_from_the_loops_own_work() -> None:
    names: dict[str, object] = {}
    torch_file = "/x/site-packages/torch/distributed/distributed_c10d.py"
    exec(compile("def all_reduce(look):\n    return look()\n", torch_file, "exec"), names)
    exec(compile("def step(call, look):\n    return call(look)\n", "/home/somebody/train.py", "exec"), names)
    # Not a lambda of this file: its frame would be the innermost one of the user's.
    foreign = ("/usr/lib/", __file__)
    look = lambda: look_at(sys._getframe(), foreign).place  # noqa: E731
    assert names["step"](names["all_reduce"], look)[:4] == ("train.py:2 step", "other", False, True)  # type: ignore[operator]
    assert names["step"](lambda own: own(), look)[:4] == ("train.py:2 step", "other", False, False)  # type: ignore[operator]
