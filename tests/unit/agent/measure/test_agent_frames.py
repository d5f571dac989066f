"""Looks at a thread: soon after they are asked for, and nothing is left of it afterwards."""

import socket
import sys
import threading
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.measure import stack_sampler
from autobrrr.agent.measure.code_sites import Code, called_at
from autobrrr.agent.measure.stack_sampler import (
    SWITCH_S,
    StackLook,
    foreign_folders,
    look_at,
    looks_come_soon,
)
from autobrrr.agent.phases.loader_watch import LoaderWatch
from autobrrr.agent.wire.agent_socket import AgentSocket
from autobrrr.records import FrameSamples


@pytest.fixture(autouse=True)
def interval() -> Iterator[float]:
    before = sys.getswitchinterval()
    yield before
    sys.setswitchinterval(before)


def test_the_switch_interval_is_short_only_while_looking(interval: float) -> None:
    with looks_come_soon():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    assert sys.getswitchinterval() == interval


def sampled(ident: int | None = None, **more: Any) -> dict[str, object]:
    """Three looks at a thread, else at this one."""
    looks, here = iter([False] * 3), sys.modules[__name__]
    watch, ended = LoaderWatch(Job(here)), lambda: next(looks, True)
    return stack_sampler.sample(
        here, ident or threading.get_ident(), watch, for_s=3600, every_s=0.001, ended=ended, **more
    )


def test_sampling_ends_with_the_link_that_waits_for_it() -> None:
    ours, theirs = socket.socketpair()
    link = AgentSocket(ours)
    try:
        theirs.sendall(b"a frame that waits is no loss")
        assert not link.lost()
        theirs.close()
        assert link.lost()
        assert sampled()["samples"] == 3
    finally:
        link.close()
        ours.close()


def test_code_that_torch_compile_wrote_is_not_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/x/cache")
    names: dict[str, object] = {}
    exec(compile("def call(look):\n    return look()\n", "/x/cache/c4/c4t5.py", "exec"), names)
    resumed = "torch_dynamo_resume_in_train_step_at_16"
    exec(compile(f"def {resumed}(look):\n    return call(look)\n", "/x/train.py", "exec"), names)
    foreign = foreign_folders(ModuleType("torch"))
    found: StackLook = names[resumed](lambda: look_at(sys._getframe(1), foreign))  # type: ignore[operator]
    assert found.place.where == "train.py:2 train_step"


def test_what_a_checkpoint_computes_again_is_told() -> None:
    found: list[StackLook] = []

    class Block(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found.append(look_at(sys._getframe(), foreign_folders(torch)))
            return super().forward(x)

    block = Block(2, 2)
    checkpoint(block, torch.ones(1, 2, requires_grad=True), use_reentrant=False).sum().backward()
    assert [(one.serves, one.place.phase) for one in found] == [("", "forward"), ("recomputes", "forward")]
    assert found[1].served.endswith(" forward")


def test_what_torch_s_loader_does_is_told_by_its_innermost_frame() -> None:
    folder = "/x/site-packages/torch/utils/data"

    def asked(function: str, file: str = "dataloader.py", line: str = "look()") -> str:
        names: dict[str, object] = {}
        exec(
            compile(f"def {function}(look, self=None):\n    return {line}\n", f"{folder}/{file}", "exec"),
            names,
        )
        found: StackLook = names[function](  # type: ignore[operator]
            lambda: look_at(sys._getframe(1), ("/usr/lib/",)), SimpleNamespace(**state)
        )
        return found.place.does

    state: dict[str, object] = {"_rcvd_idx": 5, "_persistent_workers": False}
    assert asked("_next_index") == "sampler"
    assert asked("_try_get_data") == "waits for workers"
    assert asked("fetch", "_utils/fetch.py") == "loads"
    assert asked("default_collate", "_utils/collate.py") == "collate"
    assert asked("__init__", line="look() or self._worker_result_queue") == "worker start"
    assert asked("__init__") == ""
    state["_rcvd_idx"] = 0  # the first batch: they are starting
    assert asked("_try_get_data") == "worker start"
    state["_persistent_workers"] = True
    assert asked("_try_get_data") == "waits for workers"


def test_time_counts_where_a_look_comes_late_and_long_steps_are_told_apart() -> None:
    ran_ns = iter([1, 30, 30])
    found = sampled(running_ns=lambda: next(ran_ns), usual_ns=10)
    places = found["places"]
    assert isinstance(places, list)
    assert sum(each["ns"] for each in places) == found["ns"] > 2_000_000
    assert msgspec.convert(found, FrameSamples).places, "numbers are numbers"
    assert 0 < sum(each["long_ns"] for each in places) < found["ns"]  # type: ignore[operator]
    assert found["workers"] == []


def test_a_line_is_told_with_what_it_calls() -> None:
    source = """
def train(gc, model, sort):
    for step in range(9):
        gc.collect(sort)
        torch.LongTensor(step).sort()
"""
    names: dict[str, Any] = {}
    exec(compile(source, "/home/somebody/train.py", "exec"), names)
    code = Code(names["train"].__code__)
    of_c = ((one.offset, one.argval) for one in code.instructions)
    at = {name: offset for offset, name in of_c}
    assert called_at(code, at["collect"], None) == {"collect"}
    assert called_at(code, at["LongTensor"], None) == {"torch", "LongTensor", "sort"}
    for file, library in (
        ("/x/site-packages/pandas/core/indexing.py", "pandas"),
        ("/usr/lib/python3.11/copy.py", "copy"),
        ("/usr/lib/python3.11/json/decoder.py", "json"),
        ("<frozen posixpath>", "posixpath"),
    ):
        called = compile("", file, "exec").replace(co_name="does")
        assert called_at(code, at["collect"], called) == {library, f"{library}.does"}
    assert called_at(code, at["collect"], compile("", "<string>", "exec")) == set()


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("distributions/distribution.py", "validates"),
        ("_tensor_str.py", "prints"),
        ("nn/utils/parametrizations.py", "parametrizes"),
        ("functional.py", None),
    ],
)
def test_a_library_file_of_one_purpose_tells_what_the_user_s_line_does(file: str, what: str | None) -> None:
    names: dict[str, Any] = {}
    waits = "def waits(began, ended):\n    began.set()\n    while not ended:\n        pass\n"
    exec(compile(waits, "/x/site-packages/torch/functional.py", "exec"), names)
    calls = "def {}(*events):\n    {}(*events)\n"
    exec(compile(calls.format("serves", "waits"), f"/x/site-packages/torch/{file}", "exec"), names)
    exec(compile(calls.format("line", "serves"), "/home/somebody/train.py", "exec"), names)
    began, ended = threading.Event(), list[int]()
    thread = threading.Thread(target=names["line"], args=(began, ended))
    thread.start()
    assert began.wait(5)
    found = sampled(ident=thread.ident)
    ended.append(1)
    thread.join()
    told = [one["what"] for one in found["code"] if one["where"] == "train.py:2 line"]  # type: ignore[attr-defined]
    assert sorted(told) == [*(["calls torch", "calls torch.serves"]), *([] if what is None else [what])]
