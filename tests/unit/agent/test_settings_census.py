"""The census reads what is set and what is kept, and sets nothing."""

import os
import random
import sys
import threading
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from autobrrr.agent import settings_census
from autobrrr.agent.phases.batch_shapes import texts_of
from autobrrr.agent.settings_census import EVERY_S, LATE_S, Left, SettingsCensus, _weights


class Loop:
    """A loop that comes to its boundary when it is told to."""

    def __init__(self, *parameters: torch.Tensor, **state: torch.Tensor) -> None:
        optimizer = SimpleNamespace(param_groups=[{"params": list(parameters)}], state={0: state})
        self.torch = torch
        self.job = SimpleNamespace(optimizers=[optimizer], updated=list(parameters), roots=[])
        self.measuring = SimpleNamespace(task=None)
        self.phases = SimpleNamespace(texts=deque[object]())
        self.hot = SimpleNamespace(owner=threading.get_ident(), steps=100)
        self.posted: list[Callable[[], None]] = []

    def post(self, work: Callable[[], None]) -> None:
        self.posted.append(work)


def facts(loop: Loop) -> dict[str, dict[str, object]]:
    census = SettingsCensus(loop)  # type: ignore[arg-type]
    assert census.facts() is None
    loop.posted.pop()()
    found = census.facts()
    assert census.facts() is None  # it is told once
    assert not loop.posted
    return {str(one["name"]): one for one in found["facts"]}  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "gettrace", lambda: None)  # the tests themselves may be covered
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    yield
    torch.autograd.set_detect_anomaly(False)


def test_nothing_is_told_of_an_ordinary_job() -> None:
    assert facts(Loop(torch.zeros(8, 8), exp_avg=torch.ones(100))) == {}


def test_a_switch_is_told_with_the_line_that_sets_it() -> None:
    torch.autograd.set_detect_anomaly(True)
    line = sys._getframe().f_lineno - 1
    found = facts(Loop())["anomaly"]
    name = "test_a_switch_is_told_with_the_line_that_sets_it"
    assert found["where"] == f"test_settings_census.py:{line} {name}"
    assert torch.is_anomaly_enabled()


def test_what_watches_python_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "gettrace", SimpleNamespace)
    tracemalloc.start(7)
    try:
        found = facts(Loop())
    finally:
        tracemalloc.stop()
    assert found["tracing"]["detail"] == "types.SimpleNamespace"
    assert found["tracemalloc"]["detail"] == "7 frames"


def test_more_threads_than_cpus_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    assert facts(Loop())["threads"]["detail"] == "16 threads on 2 CPUs"


def test_doubles_and_denormals_are_told_as_shares() -> None:
    half = torch.tensor([1.0, 3e-41] * 50)
    loop = Loop(torch.zeros(30, dtype=torch.float64), torch.zeros(10), exp_avg=half, step=torch.tensor(5.0))
    found = facts(loop)
    assert found["float64"]["value"] == 0.75
    assert found["denormals"]["value"] == pytest.approx(0.5, abs=0.01)


def test_a_hook_that_is_registered_again_and_again_is_told() -> None:
    layer = torch.nn.Linear(4, 4)
    loop = Loop(layer.weight)
    loop.job.roots = [torch.nn.Sequential(layer)]
    for many in range(10):
        assert ("hooks" in facts(loop)) == (many > 7), many
        layer.register_forward_hook(lambda *_: None)
        layer.register_forward_hook(partial(print))
    told = facts(loop)["hooks"]
    assert told["value"] == 0.9
    assert str(told["detail"]).endswith(" <lambda>")
    assert str(told["where"]).endswith(" test_a_hook_that_is_registered_again_and_again_is_told")


def test_gradients_that_no_optimizer_takes_are_told_with_their_model_while_they_are_made() -> None:
    trained, teacher = torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 24, bias=False)
    loop, left = Loop(trained.weight), Left()
    loop.job.roots = [torch.nn.Sequential(trained), trained, teacher]

    def untrained(distills: bool = True) -> object:
        taught = teacher(torch.ones(8)).sum()
        (trained(torch.ones(8)).sum() + (taught if distills else taught.detach())).backward()
        return dict(_weights(loop, left)).get("untrained")  # type: ignore[arg-type]

    assert untrained(distills=False) is None
    assert untrained() is None  # it may be of earlier training
    assert untrained() == (0.75, "Linear")
    assert untrained(distills=False) is None
    loop.hot.steps = 10
    assert untrained() is None


def test_a_gradient_to_come_and_copies_that_an_optimizer_updates_leave_no_gradient_untaken() -> None:
    trained, teacher = torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 8, bias=False)
    for loop, told in (
        (Loop(trained.weight), (0.5, "Linear")),
        (Loop(trained.weight, teacher.weight.detach().double()), None),
    ):
        loop.job.roots = [trained, teacher]
        left = Left()
        for _ in range(2):
            teacher(torch.ones(8)).sum().backward()
            found = dict(_weights(loop, left)).get("untrained")  # type: ignore[arg-type]
        assert found == told


def test_rows_without_a_gradient_are_told_of_a_large_table_only() -> None:
    table, small = torch.zeros(1 << 16, 32), torch.zeros(100, 4)
    table.grad, small.grad = torch.zeros_like(table), torch.zeros_like(small)
    table.grad[: 1 << 14] = 1.0
    assert facts(Loop(table, small))["unused_rows"] == {
        "name": "unused_rows",
        "value": 0.75,
        "detail": "65536 x 32",
        "where": None,
    }
    assert facts(Loop(small)) == {}
    table.grad = table.grad.to_sparse()
    assert facts(Loop(table)) == {}


MASK = partial(torch.ones, dtype=torch.int64)


@pytest.mark.parametrize(("numbered", "padding"), [(torch.arange, 0), (torch.arange, -100), (MASK, 0)])
def test_padding_is_told_as_its_share_where_batches_differ_in_length(
    numbered: Callable[[int], torch.Tensor], padding: int
) -> None:
    loop = Loop()
    for longest in (80, 60, 40):
        rows = [numbered(length) for length in (longest, 20)]
        batch = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=padding)
        loop.phases.texts.extend(texts_of({"mask": torch.ones(2), "input_ids": batch}))
    found = facts(loop)["padding"]
    assert (found["value"], found["detail"]) == (round(120 / 360, 3), "40 to 80")


WORDS = random.Random(0)


def of_length(length: int, to: int = 64, pad: int = 0) -> list[int]:
    return [*(WORDS.randint(1, 99) for _ in range(length)), *[pad] * (to - length)]


@pytest.mark.parametrize("turned", [list, lambda row: row[::-1]])
@pytest.mark.parametrize("pad", [0, -100])
def test_padding_to_a_maximum_is_told_where_all_batches_have_it(
    turned: Callable[[list[int]], list[int]], pad: int
) -> None:
    loop = Loop()
    for _ in range(3):  # an end that stands twice and a text that is cut are no pads
        rows = [*(of_length(length, pad=pad) for length in (10, 20, 30)), [*of_length(62, 62), 7, 7]]
        loop.phases.texts.append(torch.tensor([turned(row) for row in rows]))
    found = facts(loop)["fixed_padding"]
    assert (found["value"], found["detail"]) == (pytest.approx(134 / 256, abs=0.02), "4 x 64")


NOT_PADDED = {
    "packed": lambda: of_length(64),
    "one-hot": lambda: [int(at == WORDS.randint(0, 40)) for at in range(64)],
    "counts": lambda: [WORDS.randint(1, 9) * (WORDS.random() < 0.2) for _ in range(64)],
    "mask": lambda: [1] * (length := WORDS.randint(9, 40)) + [0] * (64 - length),
    "image": lambda: [0] * 20 + of_length(20, 44 - WORDS.randint(0, 9)) + [0] * 9,
    "columns": lambda: of_length(30),
    "own ends": lambda: of_length(WORDS.randint(10, 40), pad=WORDS.randint(1, 99)),
    "class": lambda: [WORDS.randint(0, 9)] * 64,
    "zeros": lambda: [0] * 64,
    "ids": lambda: [WORDS.randint(0, 9)],
}


@pytest.mark.parametrize("rows", NOT_PADDED.values(), ids=NOT_PADDED)
def test_batches_of_one_length_may_end_in_repeats_and_hold_no_padding(rows: Callable[[], list[int]]) -> None:
    loop = Loop()
    for _ in range(4):
        made = [rows() for _ in range(16)]
        shortest = min(map(len, made))
        loop.phases.texts.append(torch.tensor([row[:shortest] for row in made]))
    assert not facts(loop)


def test_the_first_texts_are_read_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    loop = Loop()
    census = SettingsCensus(loop)  # type: ignore[arg-type]
    for after_s, batches, looks in ((0, 0, 1), (4, 0, 0), (0, 3, 1), (4, 3, 0)):
        now_s[0] += after_s
        loop.phases.texts.extend(torch.arange(4).view(2, 2) for _ in range(batches))
        census.facts()
        assert len(loop.posted) == looks
        for look in loop.posted:
            look()
        loop.posted.clear()


class Sharded(torch.Tensor):  # type: ignore[misc]
    """As a DTensor: an operator on it would talk to the other ranks."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: object, *_: object) -> None:
        raise AssertionError(f"{func} ran")


def test_no_operator_runs_on_what_is_sharded() -> None:
    shard = torch.Tensor._make_wrapper_subclass(Sharded, (1 << 10, 1 << 10))
    table = SimpleNamespace(grad=shard, dtype=torch.float32, numel=lambda: 1 << 20, dim=lambda: 2)
    assert facts(Loop(table, exp_avg=shard)) == {}


def test_compiling_the_same_again_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(ago_s: float, cache_size: int) -> SimpleNamespace:
        return SimpleNamespace(
            start_time_us=(time.time() - ago_s) * 1e6,
            cache_size=cache_size,
            duration_us=2_000_000,
            co_filename="/home/somebody/model.py",
            co_firstlineno=20,
            co_name="forward",
            recompile_reason="triggered by:\n- tensor 'ids' size mismatch at index 1",
        )

    log = [compiled(100, 1), compiled(20, 0), compiled(20, 1), compiled(6, 1), compiled(1, 2)]
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(_compilation_metrics=log))
    found = facts(Loop())["recompiles"]
    assert found["value"] == 0.4
    assert found["detail"] == "model.py:20 forward: tensor 'ids' size mismatch at index 1"


def test_a_function_that_dynamo_splits_is_told_with_the_first_line_and_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compiled(name: str, *reasons: str) -> SimpleNamespace:
        return SimpleNamespace(
            co_name=name, co_filename="/home/somebody/model.py", start_time_us=0, restart_reasons={*reasons}
        )

    log = [
        compiled("loss"),
        compiled("forward", "Unsupported\n  Explanation: Dynamo does not trace `Tensor.item()`.\n  Hint: x"),
        compiled("torch_dynamo_resume_in_forward_at_10", "print", "<class 'Restart'>"),
        compiled("torch_dynamo_resume_in_forward_at_12"),
    ]
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(_compilation_metrics=log))
    told = "model.py:10 forward (Dynamo does not trace `Tensor.item()`); and at 1 more"
    assert facts(Loop())["graph_breaks"]["detail"] == told
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(_compilation_metrics=log[:1]))
    assert facts(Loop()) == {}


def test_memory_on_disk_is_told_as_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"VmSwap": 100, "VmRSS": 300}
    monkeypatch.setattr(settings_census, "figure", lambda file, name: held.get(name))
    assert facts(Loop())["swap"]["value"] == 0.25


def test_a_look_is_asked_for_again_now_and_then_and_not_while_steps_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    loop = Loop(torch.zeros(4, dtype=torch.float64))
    census = SettingsCensus(loop)  # type: ignore[arg-type]
    for seconds, late in ((0.0, False), (1.0, False), (LATE_S - 1, True), (LATE_S, False), (EVERY_S, True)):
        now_s[0] += seconds
        assert (census.facts() is not None) == late  # no boundary has come: what needs none is told
        assert len(loop.posted) == 1
    loop.posted.pop()()
    assert census.facts() is not None
    now_s[0] += 2 * EVERY_S
    census.facts()
    assert len(loop.posted) == 1
    loop.posted.pop()()
    loop.measuring.task = object()
    now_s[0] += EVERY_S
    census.facts()
    assert not loop.posted


def test_a_device_s_allocator_is_read_and_a_cpu_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> object:
        loop = Loop()
        census = SettingsCensus(loop)  # type: ignore[arg-type]
        assert census.facts() is None
        loop.posted.pop()()
        return (census.facts() or {})["allocator"]

    assert told() is None
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    counted = {"reserved_bytes.all.current": 7, "allocated_bytes.all.peak": 5}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: counted)
    assert told() == {"reserved_bytes": 7, "peak_bytes": 5}
