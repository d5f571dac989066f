"""What the kernel says is read as the kernel wrote it, whatever a process put into it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.attach import job_listing, job_roles, triage
from autobrrr.machine import control_groups, kernel_text, processors
from support.machines.fake_proc import FakeProc

TORCH = "7f00-7f01 r--p 00000000 08:01 9 /site/torch/lib/libtorch_python.so"


@pytest.mark.parametrize(
    ("text", "found"), [("0", 0), ("12\n", 12), ("-1", -1), ("18446744073709551615", 2**64 - 1), (b"7", 7)]
)
def test_a_number_of_the_kernel_s(text: str | bytes, found: int) -> None:
    assert kernel_text.number(text) == found


@given(st.text())
def test_any_text_is_a_number_in_ascii_or_none(text: str) -> None:
    found = kernel_text.number(text)
    assert found is None or (text.isascii() and int(text) == found)


@given(st.binary(max_size=300))
def test_any_bytes_in_proc_give_an_answer(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    fake = FakeProc(tmp_path_factory.mktemp("proc"))
    folder = fake.add(10, torch=True)
    for name in ("stat", "status", "cmdline", "environ", "maps", "syscall"):
        (folder / name).write_bytes(junk)
    (folder / "maps").write_bytes(TORCH.encode() + b"\n" + junk)
    for found in job_listing.find(fake.root, own_pid=1, sleep=lambda seconds: None):
        assert found.pid == 10
    job_roles.rank_of(10, fake.root)
    job_roles.job_of(10, fake.root)
    triage.refusal(triage.TriageCase(pid=10, proc=fake.root))
    processors.busy_ns(10, fake.root)
    control_groups.throttled_ns(10, fake.root, fake.root)


def test_a_process_that_can_t_be_looked_at_says_so_in_its_row(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid in (10, 11):
        proc.add(pid, torch=True, state="T")
    asked = job_roles.rank_of

    def rank_of(pid: int, root: Path) -> int | None:
        if pid == 10:
            raise ValueError("odd\x1b")
        return asked(pid, root)

    monkeypatch.setattr(job_roles, "rank_of", rank_of)
    odd, other = job_listing.find(proc.root, own_pid=99)
    assert odd.why == r"it can't be looked at: ValueError: odd\x1b"
    assert other.script == "train.py"


def test_no_more_than_a_bound_is_read(tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as opened:
        opened.truncate(1 << 40)
    assert len(kernel_text.data(file) or b"") == kernel_text.MOST_BYTES
    os.mkfifo(tmp_path / "fifo")
    assert kernel_text.data(tmp_path / "fifo") == b""  # at once
    assert kernel_text.data(tmp_path / "none") is None
