"""Bursts, patches, the tap, the looks at frames; imports, errors of ours, one session: each by itself."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import autobrrr
from autobrrr.agent.entry import Occupied, claimed
from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.loop.step_hook import Hot, make_tap
from autobrrr.agent.measure.stack_sampler import Place, look_at
from autobrrr.agent.phases import sampled_step
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


AGENT = Path(autobrrr.__file__).resolve().parent / "agent"


@pytest.mark.integration
def test_all_that_the_agent_imports_a_job_has_already() -> None:
    names = set()
    for file in AGENT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names.add(node.module)
    wanted = sorted(each for each in names if each.partition(".")[0] in sys.stdlib_module_names)
    assert "gc" in wanted
    program = (
        "import sys, torch\ntorch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)\n"
        f"print([each for each in {wanted} if each not in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n", "an import of these runs a file of that name beside the script"


def test_faults_are_counted_as_they_come() -> None:
    before = sampled_step.minor_faults()
    bytearray(64 << 20)
    assert sampled_step.minor_faults() > before


@pytest.fixture
def handled() -> Iterator[None]:
    def handler(*_: object) -> None:
        raise TimeoutError("of the job")

    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)


class Odd:
    """An array whose shape can't be read; a signal comes while we try."""

    __module__ = "torch.odd"

    def __init__(self, *, signalled: bool) -> None:
        self._signalled = signalled

    @property
    def shape(self) -> tuple[int, ...]:
        if self._signalled:
            signal.raise_signal(signal.SIGUSR1)
        raise RuntimeError("no shape")


@pytest.mark.usefixtures("handled")
def test_only_what_a_handler_raised_leaves_a_guard() -> None:
    assert batch_size([Odd(signalled=False)]) == -1
    with pytest.raises(TimeoutError, match="of the job"):
        batch_size([Odd(signalled=True)])


def test_a_second_session_is_refused_and_a_later_one_is_not() -> None:
    with claimed({"token": "a"}):
        with pytest.raises(Occupied), claimed({"token": "a"}, patience_s=0):
            pytest.fail("two sessions at once")
        with pytest.raises(Occupied), claimed({"token": "b"}, patience_s=0):
            pytest.fail("the refused one has ended the claim of the first")
    with claimed({"token": "c"}, patience_s=0):
        pass


def test_a_claim_ends_with_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError), claimed({}):
        raise ZeroDivisionError
    with claimed({}, patience_s=0):
        pass


def test_one_that_is_leaving_is_waited_for() -> None:
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with claimed({}):
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(10)
    threading.Timer(0.05, leave.set).start()
    with claimed({}, patience_s=10):
        pass
    thread.join()


def test_a_child_that_was_forked_with_a_claim_is_free() -> None:
    with claimed({}):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with claimed({}, patience_s=0):
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
