"""The work of real operators is read from their shapes: operations, bytes, and what moves nothing."""

from __future__ import annotations

import gc
from _thread import get_ident
from collections.abc import Callable
from statistics import median
from time import perf_counter_ns, sleep

import pytest
import torch
from torch import nn

from autobrrr.injected.live_torch import dispatch_modes
from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.measure import dispatch_timer
from autobrrr.injected.measure.op_work import Work
from autobrrr.injected.measure.op_work_table import work_table
from autobrrr.injected.phases.loader_watch import LoaderWatch
from autobrrr.injected.phases.phase_clock import DATA_WAIT, FORWARD, NAMES, PhaseClock
from autobrrr.injected.phases.phase_hooks import PhaseHooks
from autobrrr.injected.phases.sampled_step import GarbageClock

pytestmark = pytest.mark.integration

FLOAT = 4


def counted(program: Callable[[], object], phases: PhaseClock | None = None) -> dispatch_timer.TimingMode:
    mode = dispatch_timer.enter(torch, phases)
    mode.count = dispatch_timer.counter()
    try:
        program()
    finally:
        mode.over = True
        assert dispatch_modes.leave(torch, mode)
    return mode


def works(program: Callable[[], object]) -> dict[str, Work]:
    """The work of each operator that the program dispatches, by its name; the last of each."""
    with torch.no_grad():
        mode = counted(program)
    assert None not in mode.work
    return {str(op).split(".")[1]: work for op, work in zip(mode.ops, mode.work, strict=True) if work}


A, B = torch.ones(64, 32), torch.ones(32, 16)


@pytest.mark.parametrize(
    ("name", "program", "flops", "moved"),
    [
        ("mm", lambda: A @ B, 2 * 64 * 32 * 16, FLOAT * (64 * 32 + 32 * 16 + 64 * 16)),
        ("mv", lambda: A @ torch.ones(32), 2 * 64 * 32, FLOAT * (64 * 32 + 32 + 64)),
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
        (
            "embedding",
            lambda: nn.functional.embedding(torch.zeros(8, dtype=torch.int64), torch.ones(1_000, 32)),
            0,
            2 * FLOAT * 8 * 32 + 8 * 8,
        ),
        (
            "convolution",
            lambda: nn.functional.conv2d(torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3)),
            2 * 2 * 4 * 3 * 9 * 36,
            FLOAT * (2 * 3 * 64 + 4 * 27 + 2 * 4 * 36),
        ),
    ],
)
def test_an_operator_does_what_its_shapes_say(
    name: str, program: Callable[[], object], flops: int, moved: int
) -> None:
    found = works(program)[name]
    assert (found.flops, found.bytes) == (flops, moved)


def test_a_whole_step_of_real_modules_is_read_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_timer, "COUNTING_NS", 1 << 60)  # a slow machine leaves gaps, by intention
    model = nn.Sequential(nn.Embedding(100, 16), nn.LSTM(16, 24))
    head = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 4))
    parameters = [*model.parameters(), *head.parameters()]
    optimizers = [
        torch.optim.AdamW(parameters, foreach=False),
        torch.optim.AdamW(parameters, foreach=True),
        torch.optim.AdamW(parameters, fused=True),
    ]

    def step() -> None:
        for optimizer in optimizers:
            optimizer.zero_grad()
            out, _ = model(torch.zeros(5, 3, dtype=torch.int64))
            nn.functional.cross_entropy(
                head(out).flatten(0, 1), torch.zeros(15, dtype=torch.int64)
            ).backward()
            optimizer.step()

    mode = counted(step)
    assert None not in mode.work
    assert len(mode.work) == len(mode.ops) > 50
    by_name = {str(op): work for op, work in zip(mode.ops, mode.work, strict=True)}
    fused = by_name["aten._fused_adamw_.default"]
    size = FLOAT * sum(parameter.numel() for parameter in parameters)
    assert fused is not None
    assert fused.bytes == pytest.approx(7 * size, rel=0.01)  # reads four lists, writes three


def test_counting_changes_no_bit() -> None:
    def train(count: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 2))
        optimizer = torch.optim.AdamW(model.parameters())

        def step() -> None:
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()

        for _ in range(3):
            if count:
                counted(step)
            else:
                step()
        return [*model.parameters(), torch.rand(1)]

    assert all(torch.equal(left, right) for left, right in zip(train(True), train(False), strict=True))


def test_an_operator_that_cannot_be_read_goes_uncounted_and_hurts_nobody() -> None:
    count = dispatch_timer.counter()
    assert count(object(), (object(),), {}, None) is not None  # no tensors: nothing to do
    assert count(torch.ops.aten.mm.default, (object(), object()), {}, A) is None


def test_after_too_much_time_the_rest_goes_uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_timer, "COUNTING_NS", 0)
    mode = counted(lambda: A @ B)
    assert mode.work
    assert set(mode.work) == {None}


def test_the_table_takes_its_times_from_the_timed_steps_and_leaves_the_loader_out() -> None:
    def program(phases: PhaseClock) -> Callable[[], None]:
        def run() -> None:
            with torch.no_grad():
                phases.load_enter(0)
                torch.ones(16) + 1
                phases.load_exit(1)
                phases.root_enter(1, 2, grad=True)
                A @ B
                A @ B
                A * 2

        return run

    counts, timed = PhaseClock(), PhaseClock()
    first = counted(program(counts), counts)
    second = counted(program(timed), timed)
    second.spent[:] = type(second.spent)("q", [1_000 * (at + 1) for at in range(len(second.spent))])
    assert set(first.where) == {DATA_WAIT, FORWARD}
    table = work_table(first, [second], lambda op: 500, {})
    rows = {(row["op"], row["phase"]): row for row in table}
    product = rows["aten.mm.default", "forward"]
    at = [place for place, op in enumerate(second.ops) if str(op) == "aten.mm.default"]
    assert product["count"] == 2
    assert product["kernel_ns"] == sum(1_000 * (place + 1) - 500 for place in at)
    assert product["shapes"] == "64x32 32x16"
    assert product["flops"] == 2 * 2 * 64 * 32 * 16
    assert {phase for _, phase in rows} == {"forward"}
    assert [row["kernel_ns"] for row in table] == sorted((row["kernel_ns"] for row in table), reverse=True)


def test_steps_that_differ_from_the_counted_one_lend_each_operator_its_time() -> None:
    with torch.no_grad():
        first, other = counted(lambda: (A @ B, A @ B)), counted(lambda: A @ B)
    product = next(op for op in first.ops if str(op) == "aten.mm.default")
    (row,) = work_table(first, [other], lambda op: 0, {product: 9_000.0})
    assert row["kernel_ns"] == pytest.approx(9_000.0)


def test_garbage_is_timed_only_while_the_clock_is_on() -> None:
    clock = GarbageClock()
    before = list(gc.callbacks)
    clock.put_on()
    clock.put_on()
    gc.collect()
    during = clock.take_off()
    gc.collect()
    assert during > 0
    assert clock.take_off() == during
    assert gc.callbacks == before


def test_a_clock_that_the_user_has_thrown_out_does_not_fail() -> None:
    clock = GarbageClock()
    clock.put_on()
    gc.callbacks.remove(gc.callbacks[-1])
    assert clock.take_off() == 0


def test_uneven_steps_are_seen_and_even_ones_need_no_more() -> None:
    def results(kernels: list[int], plain: list[int]) -> dispatch_timer.Results:
        found = dispatch_timer.Results()
        for ns in kernels:
            mode = counted(lambda: A * 2)
            mode.spent[:] = type(mode.spent)("q", [ns] * len(mode.spent))
            found.add_traced(mode, 10 * ns)
        for ns in plain:
            found.add_plain(ns, None)
        found.add_plain(int(median(plain)), {"forward": 1})
        return found

    even = results([1_000] * 6, [100_000, 101_000, 99_000] * 3)
    assert even.steady
    assert not results([1_000] * 6, [60_000, 100_000, 160_000] * 3).steady
    assert not results([1_000, 40_000, 80_000, 1_000, 40_000, 80_000], [100_000] * 6).steady
    assert even.operators == sum(len(mode.ops) for mode, _ in even.traced)


def test_a_pause_between_two_real_networks_is_told_from_their_forward() -> None:
    def fail(error: BaseException) -> None:
        raise error

    actor, critic = nn.Linear(4, 1), nn.Linear(4, 1)
    job, phases = Job(torch), PhaseClock()
    for root in (actor, critic):
        job.saw_root(root)
    hooks = PhaseHooks(job, phases, LoaderWatch(job), fail)
    hooks.put_on(get_ident(), compiled=False)
    phases.begin(perf_counter_ns())
    mode = dispatch_timer.enter(torch, phases)
    try:
        push = actor(torch.ones(8, 4))
        sleep(0.02)
        (critic(torch.ones(8, 4)) - push).square().mean().backward()
    finally:
        mode.over = True
        assert dispatch_modes.leave(torch, mode)
        hooks.take_off(at_boundary=True)
        hooks.take_off_wrappers()
    spent = dict(zip(NAMES, phases.finish(perf_counter_ns()), strict=True))
    assert 20_000_000 <= phases.between <= spent["forward"]
