"""What the kernel says is read as the kernel wrote it, whatever a process put into it."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.agent.job_facts import rank_of
from autobrrr.agent.remedies.loader import loader_workers
from autobrrr.agent.wire.plain_number import whole_number
from autobrrr.attach import job_listing, job_roles, triage
from autobrrr.attach.ptrace import elf_symbols
from autobrrr.cli.verb_arguments import process_number
from autobrrr.machine import control_groups, kernel_text, process_maps, processors, procfs
from autobrrr.trace.device.device_work import device_label
from support.machines.fake_proc import FakeProc

TORCH = "7f00-7f01 r--p 00000000 08:01 9 /site/torch/lib/libtorch_python.so"


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


@pytest.mark.parametrize(
    ("text", "found"),
    [("0", 0), ("12\n", 12), ("-1", -1), ("18446744073709551615", 2**64 - 1), (b"7", 7)],
)
def test_a_number_of_the_kernel_s(text: str | bytes, found: int) -> None:
    assert kernel_text.number(text) == found


@pytest.mark.parametrize(
    "text", ["", "²", "\uff11", "٣", "9" * 5000, "1_0", "0x1", "+1", "1 2", "\x0c1", b"\xff", None]
)
def test_what_python_takes_for_a_number_and_the_kernel_never_writes(text: str | bytes | None) -> None:
    assert kernel_text.number(text) is None


@given(st.text())
def test_any_text_is_a_number_in_ascii_or_none(text: str) -> None:
    found = kernel_text.number(text)
    assert found is None or (text.isascii() and int(text) == found)


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r"])
def test_a_name_adds_no_line(end: str, proc: FakeProc) -> None:
    proc.add(10, comm=f"a{end}Uid:\t0\t0\t0\t0{end}Cpus_allowed_list:\t0", uid=7)
    assert procfs.owner(10, proc.root) == (7, 0)
    line = TORCH.replace("/site", f"/site{end}7f02-7f03 r-xp 00000000 08:01 9 /x")
    assert [mapping.path for mapping in process_maps.parse(f"{line}\n")] == [line.split(" ", 5)[5]]


def test_a_line_that_a_name_forges_does_not_count(proc: FakeProc) -> None:
    folder = proc.add(10, uid=7)
    text = (folder / "status").read_text()
    (folder / "status").write_text("Uid:\t0\t0\t0\t0\n" + text)
    assert procfs.owner(10, proc.root) == (7, 0)


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
    triage.refusal(triage.TriageCase(pid=10, proc=fake.root, sleep=lambda seconds: None))
    processors.busy_ticks(10, fake.root)
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


def test_many_that_look_busy_are_waited_for_together(proc: FakeProc) -> None:
    for pid in range(10, 60):
        proc.add(pid, torch=True, state="D")
        proc.add(pid + 100, torch=True, ppid=pid)
    slept: list[float] = []
    job_listing.find(proc.root, own_pid=99, sleep=slept.append)
    assert sum(slept) < job_listing.WAIT_S + job_roles.SAMPLE_S + 0.1


def test_no_more_than_a_bound_is_read(tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as opened:
        opened.truncate(1 << 40)
    assert len(kernel_text.data(file) or b"") == kernel_text.MOST_BYTES
    os.mkfifo(tmp_path / "fifo")
    assert kernel_text.data(tmp_path / "fifo") == b""  # at once
    assert kernel_text.data(tmp_path / "none") is None


def test_a_variable_given_twice_counts_as_the_process_sees_it(proc: FakeProc) -> None:
    folder = proc.add(10)
    (folder / "environ").write_bytes(b"A=1\0RANK=1\0RANK=2\0XRANK=3\0B")
    assert {name: value.raw for name, value in procfs.environ(10, ("RANK", "A", "B"), proc.root).items()} == {
        "RANK": "1",
        "A": "1",
    }


def test_a_library_that_shrinks_while_it_is_read_is_cut_short(tmp_path: Path) -> None:
    file = tmp_path / "lib.so"
    file.write_bytes(b"\x7fELF\x02\x01" + bytes(8000))
    with file.open("rb") as opened:
        read_at = elf_symbols.of_file(opened.fileno())
        assert len(read_at(4000, 200)) == 200
        file.write_bytes(b"")
        assert read_at(4096 * 3, 10) == b""
        with pytest.raises(elf_symbols.NotElf):
            elf_symbols.Elf(elf_symbols.of_file(opened.fileno()))


ODD = ["²", "٣", "+5", "1_000", "", " ", "5 5", "0x5", "\uff15", "1" * 5000]


@pytest.mark.parametrize("text", ODD)
def test_only_plain_digits_are_a_number_on_either_side(
    text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert kernel_text.number(text) is None
    assert whole_number(text) is None
    monkeypatch.setenv("RANK", text)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert rank_of(ModuleType("torch")) == (None, None)
    assert loader_workers.default_workers(4, {"LOCAL_WORLD_SIZE": text}) == 3
    assert device_label(text) == text
    with pytest.raises(ArgumentTypeError):
        process_number(text)


def test_plain_digits_are_a_number_on_either_side() -> None:
    assert kernel_text.number("12\n") == whole_number("12\n") == 12
    assert (kernel_text.number("-5"), whole_number("-5"), whole_number(None)) == (-5, None, None)


def test_a_job_with_as_many_mappings_as_the_kernel_allows_is_read_to_its_end(tmp_path: Path) -> None:
    shared = (
        "7f0000000000-7f0000001000 rw-s 00000000 00:1a 12345678    /dev/shm/torch_4242_1234567890_12345\n"
    )
    torch = "7f1000000000-7f1000001000 r-xp 00000000 08:01 42    /env/torch/lib/libtorch_python.so\n"
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "maps").write_text(shared * 65_000 + torch)
    assert process_maps.mentions(42, b"libtorch_python.so", tmp_path)
    assert process_maps.read(42, tmp_path)[-1].name == "libtorch_python.so"
