"""The machine's view of a job, from a `/proc` that the test writes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from autobrrr.machine import control_groups, procfs
from autobrrr.machine.host_sampler import HostDevice
from autobrrr.machine.processors import fault_cost_ns
from autobrrr.records import HostSample
from autobrrr.roofline import quick_peaks

SECOND_NS = 1_000_000_000


@dataclass
class FakeProc:
    """Writes the files that are read."""

    root: Path
    now_ns: int = 0
    allowed: dict[int, set[int]] = field(default_factory=dict)
    machine: list[int] = field(default_factory=lambda: [0] * 10)

    def process(
        self, pid: int, ticks: int, *, children: str = "", name: str = "python", state: str = "R"
    ) -> None:
        folder = self.root / str(pid) / "task" / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        fields = [state, "1", *["0"] * 9, str(ticks - 5), "5", *["0"] * 4, "7", "0", "12345", "0", "256", "0"]
        (self.root / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
        (folder / "children").write_text(children)

    def thread(self, pid: int, tid: int, *, delay_ns: int = 0, inside: int | None = None) -> None:
        folder = self.root / str(pid) / "task" / str(tid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedstat").write_text(f"123 {delay_ns} 9\n")
        (folder / "status").write_text(f"Name:\tx\nNSpid:\t{tid}\t{inside or tid}\n")

    def stat(self, **cpus: int) -> None:
        lines = [f"cpu{name[1:]} {busy} 0 0 900 0 0 0 0 0 0\n" for name, busy in cpus.items()]
        (self.root / "stat").write_text("cpu  " + " ".join(map(str, self.machine)) + "\n" + "".join(lines))

    def affinity(self, pid: int) -> set[int]:
        if pid not in self.allowed:
            raise ProcessLookupError
        return self.allowed[pid]

    def device(self, pid: int, tid: int | None = None) -> HostDevice:
        groups = self.root / "groups"
        return HostDevice(pid, tid, self.root, lambda: self.now_ns, cgroups=groups)

    def throttled(self, pid: int, periods: int, microseconds: int) -> None:
        folder = self.root / "groups" / "job.slice"
        folder.mkdir(parents=True, exist_ok=True)
        (self.root / "groups" / "cgroup.controllers").touch()
        (self.root / str(pid) / "cgroup").write_text("0::/job.slice\n")
        (folder / "cpu.stat").write_text(
            f"usage_usec 12\nnr_periods {periods}\nnr_throttled 3\nthrottled_usec {microseconds}\n"
        )


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    fake = FakeProc(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", fake.affinity)
    fake.stat()
    fake.process(10, 100)
    fake.thread(10, 10)
    return fake


def test_the_first_sample_has_no_shares_yet(proc: FakeProc) -> None:
    sample = proc.device(10).sample()
    assert (sample.cpu_share, sample.run_delay_share, sample.steal_share) == (None, None, None)
    assert (sample.rss_bytes, sample.threads) == (256 * 4096, 7)


def test_shares_are_of_the_time_since_the_sample_before(proc: FakeProc) -> None:
    proc.thread(10, 11, delay_ns=1000)
    device = proc.device(10, 11)
    device.sample()
    proc.now_ns += 2 * SECOND_NS
    proc.process(10, 400)  # 300 ticks of 10 ms in 2 s: one and a half cores
    proc.thread(10, 11, delay_ns=1000 + SECOND_NS // 2)
    proc.machine = [100, 0, 0, 200, 0, 0, 0, 100, 0, 0]
    proc.stat()
    sample = device.sample()
    assert sample.cpu_share == pytest.approx(1.5)
    assert sample.run_delay_share == pytest.approx(0.25)
    assert sample.steal_share == pytest.approx(0.25)


def test_who_has_the_cpus_is_told_while_the_job_waits_for_one_and_nobody_else(proc: FakeProc) -> None:
    def command(pid: int, *words: str) -> None:
        (proc.root / str(pid) / "cmdline").write_bytes(b"\0".join(map(str.encode, words)) + b"\0")

    def passes(seconds: int, delay_s: float, **ticks: int) -> HostSample:
        proc.now_ns += seconds * SECOND_NS
        waits["ns"] += int(delay_s * SECOND_NS)
        proc.thread(10, 10, delay_ns=waits["ns"])
        for name, ran in ticks.items():
            ran_so_far[name] = ran_so_far.get(name, 100) + ran
            proc.process(int(name[1:]), ran_so_far[name], name=names.get(name, "python"))
        found = device.sample()
        assert found is not None
        return found

    waits, ran_so_far = {"ns": 0}, {}
    proc.process(os.getpid(), 100, children="80 ")  # a session's, which replays a step below it
    for pid in (10, 20, 30, 40, 50, 60, 65, 70, 80, 90):
        proc.process(pid, 100)
    proc.allowed = {10: {0, 2}, 20: {0, 1}, 70: {1, 3}}  # the last can't run where the job does
    command(20, "/usr/bin/python3", "-u", "/home/me/train.py", "--token", "secret")
    command(30, "/opt/my tools/cc1plus", "-quiet")
    command(90, "My trainer: rank 0 --token secret")  # a title
    names = {"p30": "cc1plus", "p90": "My trainer: ran"}
    command(60, "/usr/bin/python3.11", "-I", str(quick_peaks.CHILD), "{}")  # of ours: nobody is to end it
    command(65, "/usr/bin/python3.11", "/home/me/.local/bin/autobrrr", "attach", "10")  # an autobrrr screen
    rank = [50]
    device = HostDevice(10, None, proc.root, lambda: proc.now_ns, beside=lambda: rank)
    device.sample()
    assert passes(3, 0.0, p20=300, p30=300).takers == []
    passes(1, 0.5)  # from here on it is looked
    found = passes(
        2, 1.0, p10=100, p20=160, p30=60, p40=4, p50=200, p60=150, p65=90, p70=200, p80=90, p90=40
    ).takers
    assert [(one.pid, one.command, one.share) for one in found] == [
        (20, "python3 train.py", 0.8),
        (30, "cc1plus", 0.3),
        (90, "My trainer: ran", 0.2),
    ]
    assert passes(1, 0.0).takers == []


def test_how_long_workers_had_no_cpu_is_of_the_time_that_they_were_ready(proc: FakeProc) -> None:
    proc.process(10, 100, children="20 21 22 ")
    for pid in (20, 21, 22):
        proc.process(pid, 100)
        proc.thread(pid, pid, delay_ns=SECOND_NS)
    device = proc.device(10)
    device.sample()
    proc.process(20, 150)  # half a second, and as long without a CPU; another ran all it wanted; one idled
    proc.thread(20, 20, delay_ns=3 * SECOND_NS // 2)
    proc.process(21, 200)
    proc.now_ns += 2 * SECOND_NS
    sample = device.sample()
    assert sample.children_delay_share == pytest.approx(0.25)


def test_children_and_theirs_are_summed_and_looked_at_rarely(proc: FakeProc) -> None:
    proc.process(10, 100, children="20 21 ")
    proc.process(20, 0, children="30 ")
    proc.process(21, 0)
    proc.process(30, 0)
    device = proc.device(10)
    device.sample()
    for pid in (20, 21, 30):
        proc.process(pid, 100, children="30 " if pid == 20 else "")
    proc.now_ns += SECOND_NS
    early = device.sample()
    proc.now_ns += SECOND_NS
    late = device.sample()
    assert early.children_cpu_share is None
    assert late.children_cpu_share == pytest.approx(1.5)


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_job_that_has_ended_gives_no_sample(proc: FakeProc, state: str) -> None:
    proc.process(10, 100, state=state)
    assert proc.device(10).sample() is None
    assert proc.device(99).sample() is None


def test_what_the_kernel_does_not_tell_is_not_measured(proc: FakeProc) -> None:
    (proc.root / "10" / "task" / "10" / "schedstat").unlink()
    (proc.root / "stat").unlink()
    device = proc.device(10)
    device.sample()
    proc.now_ns += SECOND_NS
    sample = device.sample()
    assert (sample.run_delay_share, sample.steal_share) == (None, None)
    assert sample.cpu_share == 0


def test_a_thread_of_another_pid_namespace_is_found_by_its_number_inside(proc: FakeProc) -> None:
    proc.thread(10, 15, inside=3)
    assert procfs.tid_outside(10, 3, proc.root) == 15
    assert procfs.tid_outside(10, 4, proc.root) is None


def test_time_stopped_by_a_cpu_limit_is_a_share_of_wall_time(proc: FakeProc) -> None:
    device = proc.device(10)
    proc.throttled(10, periods=5, microseconds=100_000)
    assert device.sample() is not None
    proc.throttled(10, periods=9, microseconds=400_000)
    proc.now_ns += SECOND_NS
    sample = device.sample()
    assert sample.throttled_share == pytest.approx(0.3)


def test_a_page_fault_costs_what_a_first_touch_takes_longer_than_a_second() -> None:
    clock = iter([0, 512_000, 600_000, 651_200] * 3)
    assert fault_cost_ns(lambda: next(clock)) == pytest.approx((512_000 - 51_200) / 512)
    backwards = iter([0, 10, 10, 100] * 3)
    assert fault_cost_ns(lambda: next(backwards)) is None


def test_others_are_what_runs_on_the_job_s_cpus_besides_it(proc: FakeProc) -> None:
    proc.process(10, 100)
    proc.allowed = {10: {0, 2, 3}}
    proc.stat(c0=100, c1=500, c2=100, c3=0)
    device = proc.device(10)
    device.sample()
    proc.now_ns += 2 * SECOND_NS
    proc.process(10, 300)  # one core
    proc.stat(c0=300, c1=900, c2=250, c3=30)  # 380 ticks in 2 s on the three that are allowed
    sample = device.sample()
    assert sample.foreign_cores == pytest.approx(1.9 - 1.0)


def test_a_group_s_quota_bounds_the_cpus_that_are_of_use(proc: FakeProc) -> None:
    groups = proc.root / "groups"
    proc.throttled(10, 0, 0)
    assert control_groups.cpu_quota(10, proc.root, groups) is None
    (groups / "job.slice" / "cpu.max").write_text("max 100000\n")
    (groups / "cpu.max").write_text("150000 100000\n")
    assert control_groups.cpu_quota(10, proc.root, groups) == pytest.approx(1.5)
    (groups / "job.slice" / "cpu.max").write_text("50000 100000\n")
    assert control_groups.cpu_quota(10, proc.root, groups) == pytest.approx(0.5)
