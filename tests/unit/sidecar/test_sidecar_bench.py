"""The tuner's bench: remedies through the event loop, steps by number, an end to every wait."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from autobrrr.errors import TargetGone
from autobrrr.records import Attach, JobFacts, NoClaim
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.session.ring_reader import Records, RingReader
from autobrrr.sidecar.session.session import Session
from autobrrr.sidecar.session.session_log import SessionLog
from autobrrr.sidecar.tuning import live_bench as bench_module
from autobrrr.sidecar.tuning.live_bench import LiveBench
from autobrrr.sidecar.tuning.tuning_thread import watch_over
from autobrrr.tuner.job_under_test import STEP, NotApplied, RemedyLost
from support.machines.devices import AbsentDevice
from support.screens import tui
from support.sessions.sidecar import MS, RingWriter, ScriptedAgent, facts, host_sample

SECOND_NS = 1_000_000_000


class Workshop:
    """A bench whose event loop is the caller's own thread; `answers` reply to commands at once."""

    def __init__(self, folder: Path) -> None:
        self.agent = ScriptedAgent()
        self.writer = RingWriter(256)
        self.answers: dict[str, Callable[[], dict[str, object]]] = {}
        self.session = Session(
            42,
            SessionOptions(),
            device=AbsentDevice(),
            journal=SessionLog(folder / "s.jsonl"),
            alive=lambda: True,
            cores=2,
        )
        self.session.entered(
            self.agent,
            RingReader(self.writer.fd),
            msgspec.convert(facts(42), JobFacts),
            Attach(method="ptrace", latency_ns=1, pause_ns=1),
        )
        assert self.session.begin_tuning() is None
        self.bench = LiveBench(self.session, self.call)

    def call(self, work: Callable[[], None]) -> None:
        before = len(self.agent.asked)
        work()
        for name, answer in list(self.answers.items()):
            if self.agent.asked[before:] and self.agent.asked[-1] == name:
                del self.answers[name]
                self.agent.answer(name, **answer())

    def train(self, steps: int, arm: int = 0) -> None:
        for _ in range(steps):
            self.writer.step(MS, arm=arm)
        self.session.tick()


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@pytest.mark.parametrize(("threads", "taken_s"), [(2, [2.0, 2.5]), (1, [0.0, 0.0])])
def test_cpu_time_of_ours_holds_up_a_job_that_fills_its_cpus(
    threads: int, taken_s: list[float], shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu_ns = 7 * SECOND_NS
    monkeypatch.setattr("time.process_time_ns", lambda: cpu_ns)
    shop.session.own_cpu_ns = lambda: 4 * SECOND_NS  # on two CPUs, with processes that have ended
    shop.session.findings.know(msgspec.structs.replace(shop.bench.facts, threads=threads))
    bench = LiveBench(shop.session, shop.call)
    found = [bench.taken_ns()]
    cpu_ns += SECOND_NS
    assert [*found, bench.taken_ns()] == [each * SECOND_NS for each in taken_s]


def records(first: int, count: int) -> Records:
    made = np.zeros(count, dtype=STEP)
    made["seq"] = np.arange(first, first + count)
    return made


def test_a_remedy_goes_on_with_its_token_and_its_first_step(shop: Workshop) -> None:
    shop.answers["apply"] = lambda: {"token": 3, "arm": 1, "seq": 17, "class": "rounding"}
    assert shop.bench.apply("optimizer.fused", {"a": 1}) == (3, 17)
    wanted = {"remedy": "optimizer.fused", "options": {"a": 1}, "allowed": None, "prepare": False}
    assert shop.agent.commands[-1] == ("apply", wanted)
    assert [applied.remedy for applied in shop.bench.active()] == ["optimizer.fused"]
    shop.answers["undo"] = lambda: {"arm": 2, "seq": 30}
    assert shop.bench.undo(3) == 30
    assert shop.bench.active() == []


def test_remedies_of_the_recipe_and_those_of_the_next_epoch_stand(shop: Workshop) -> None:
    planned = {"token": 1, "remedy": "optimizer.fused", "options": {}, "class": "rounding", "reach": "live"}
    shop.agent.answer("facts", active=[{**planned, "planned": True}])
    shop.answers["apply"] = lambda: {"token": 2, "arm": 1, "seq": 17, "class": "bitwise"}
    shop.bench.apply("loader.prefetch_factor", {})
    shop.answers["apply"] = lambda: {"token": 3, "arm": 2, "seq": 18, "class": "bitwise"}
    shop.bench.apply("gc.freeze", {})
    assert [(applied.remedy, applied.class_) for applied in shop.bench.standing()] == [
        ("optimizer.fused", "rounding"),
        ("loader.prefetch_factor", "stream"),
    ]
    assert [applied.remedy for applied in shop.bench.active()] == ["gc.freeze"]


def test_a_refusal_keeps_its_reason(shop: Workshop) -> None:
    shop.answers["apply"] = lambda: {"ok": False, "why": "refused: no optimizer"}
    with pytest.raises(NotApplied, match="no optimizer"):
        shop.bench.apply("optimizer.fused", {})


def test_what_can_not_be_compiled_beside_the_job_may_still_be_tried(shop: Workshop) -> None:
    shop.answers["apply"] = lambda: {"ok": False, "why": "ranks compile at one step", "code": "not_beside"}
    assert shop.bench.prepare("compile.default", {}).why == "ranks compile at one step"
    shop.answers["apply"] = lambda: {"ok": False, "why": "no module is trained", "code": "unfit"}
    with pytest.raises(NotApplied, match="no module is trained"):
        shop.bench.prepare("compile.default", {})


def test_nothing_is_compiled_beside_a_job_where_no_cpu_is_free(shop: Workshop) -> None:
    for t_ns in range(3):
        shop.session.findings.see_host(host_sample(t_ns=t_ns, cpu_share=1.0, foreign_cores=0.8))
    assert shop.bench.prepare("compile.default", {}).why == "no CPU is free"
    assert "apply" not in shop.agent.asked  # nor is it switched on to show its graphs


def test_graphs_are_taken_once_by_their_own_remedy(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_module, "CacheFiller", lambda pid, graphs: graphs)
    monkeypatch.setattr(bench_module, "SWITCH_S", 0.01)
    fd = os.memfd_create("graphs")
    os.write(fd, b"graphs")
    shop.session.on_event({"event": "graphs", "fd": fd})
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    found: list[object] = []
    for _ in range(2):
        shop.answers["apply"] = lambda: {"token": 3, "arm": 1, "seq": 0, "class": "rounding"}
        shop.answers["undo"] = lambda: {"arm": 2, "seq": 3}
        found.append(shop.bench.prepare("compile.default", {}))
    assert found == [b"graphs", "the job has shown no graphs"]
    assert shop.bench.active() == []


def test_a_remedy_that_can_not_be_undone_is_lost(shop: Workshop) -> None:
    shop.answers["undo"] = lambda: {"ok": False, "why": "the optimizer is gone"}
    with pytest.raises(RemedyLost, match="optimizer is gone"):
        shop.bench.undo(3)


def test_a_remedy_that_the_job_took_off_needs_no_undoing(shop: Workshop) -> None:
    shop.train(5)
    shop.session.on_event({"event": "remedy_lost", "token": 3, "why": "collected"})
    assert shop.bench.lost() == {3: "collected"}
    assert shop.bench.undo(3) == 5
    assert "undo" not in shop.agent.asked


def test_a_remedy_that_comes_too_late_is_taken_back(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_module, "SWITCH_S", 0.01)
    shop.bench.cancel()
    with pytest.raises(RemedyLost, match="taken back"):
        shop.bench.apply("optimizer.fused", {})
    shop.agent.answer("apply", token=9, arm=1, seq=40)
    assert shop.agent.commands[-1] == ("undo", {"token": 9})


@pytest.mark.parametrize("keeps", [True, False])
def test_an_undo_that_waits_for_the_end_of_an_evaluation_is_asked_for_once(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, *, keeps: bool
) -> None:
    monkeypatch.setattr(bench_module, "SWITCH_S", 0.01)
    if keeps:
        shop.bench.cancel(patience_s=60)
    ends = threading.Timer(0.1, lambda: shop.agent.answer("undo", arm=2, seq=30))
    ends.start()
    assert shop.bench.undo(3) == 30
    ends.join()
    assert shop.agent.asked.count("undo") == 1


def test_steps_are_given_from_a_number_on(shop: Workshop) -> None:
    shop.train(20)
    found = shop.bench.steps(15, 5, SECOND_NS)
    assert [int(seq) for seq in found["seq"]] == [15, 16, 17, 18, 19]
    assert [int(ns) for ns in found["end_ns"] - found["start_ns"]] == [MS] * 5


def test_too_few_steps_are_given_when_the_time_is_up(shop: Workshop) -> None:
    shop.train(3)
    assert len(shop.bench.steps(0, 100, 1)) == 3
    assert len(shop.bench.steps(50, 1, 1)) == 0


def test_a_wait_for_steps_ends_when_they_come(shop: Workshop) -> None:
    waiting = threading.Timer(0.05, shop.train, (10,))
    waiting.start()
    assert len(shop.bench.steps(0, 10, 20 * SECOND_NS)) == 10
    waiting.join()


def test_a_cancelled_wait_ends_with_what_there_is(shop: Workshop) -> None:
    shop.train(3)
    shop.bench.cancel()
    assert len(shop.bench.steps(0, 100, 60 * SECOND_NS)) == 3
    assert shop.bench.cancelled()


def test_once_the_job_is_gone_everything_says_so(shop: Workshop) -> None:
    shop.session.job_ended()
    with pytest.raises(TargetGone, match="process 42 ended"):
        shop.bench.steps(0, 1, SECOND_NS)
    with pytest.raises(TargetGone):
        shop.bench.apply("gc.freeze", {})
    with pytest.raises(TargetGone):
        shop.bench.next_seq()


def test_a_wait_for_a_remedy_ends_with_the_session(shop: Workshop) -> None:
    ending = threading.Thread(target=shop.session.job_ended)

    def call(work: Callable[[], None]) -> None:
        work()
        ending.start()

    shop.bench = LiveBench(shop.session, call)
    with pytest.raises(TargetGone, match="process 42 ended"):
        shop.bench.apply("gc.freeze", {})
    ending.join()


def test_steps_that_lie_in_the_ring_are_found_without_a_tick_of_the_loop(shop: Workshop) -> None:
    shop.train(3)
    for _ in range(5):
        shop.writer.step(MS)
    assert list(shop.bench.steps(3, 5, 10 * SECOND_NS)["seq"]) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize(("no_claim", "is_watched"), [(NoClaim.CROWDED, True), (None, False)])
def test_what_is_kept_in_a_crowd_is_watched_for_its_loss(no_claim: NoClaim | None, is_watched: bool) -> None:
    result = msgspec.structs.replace(tui.tuned(), speedup=1.0, interval=None, no_claim=no_claim)
    watch = watch_over(result, 0, loss_lost=False)
    assert (watch is not None) is is_watched
    slow = np.full(100, 10**12)
    assert watch is None or (watch.loss_was_finite and not watch.suspects(slow, 100_000 * SECOND_NS))
