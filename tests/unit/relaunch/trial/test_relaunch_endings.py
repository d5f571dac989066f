"""Why a trial ended, told from what it printed; and what of its output is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.relaunch.trial.trial_endings import Tail, ending_of


@pytest.mark.parametrize(
    ("code", "line", "kind"),
    [
        (1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "oom"),
        (1, "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried", "oom"),
        (-9, "epoch 3", "oom"),
        (137, "epoch 3", "oom"),
        (2, "train.py: error: unrecognized arguments: --batch 3", "refused_flag"),
        (2, "train.py: error: argument --mode: invalid choice: 'x'", "refused_flag"),
        (2, "Error: No such option: --nope", "refused_flag"),
        (2, "python: can't open file", "crash"),
        (1, "EOFError: EOF when reading a line", "asks"),
        (1, "OSError: [Errno 28] No space left on device", "disk_full"),
        (1, "PermissionError: [Errno 13] Permission denied: '/x'", "no_permission"),
        (1, "OSError: [Errno 30] Read-only file system: '/boot/x'", "no_permission"),
        (1, "RuntimeError: Address already in use", "port_taken"),
        (1, "ValueError: odd", "crash"),
        (-11, "", "crash"),
    ],
)
def test_the_last_lines_tell_the_kind(code: int, line: str, kind: str) -> None:
    ending = ending_of(code, ("epoch 1", line) if line else (), steps=40, left=0)
    assert ending.kind == kind
    assert ending.why
    assert "\n" not in ending.why


def test_an_end_without_error_is_told_by_its_steps() -> None:
    assert ending_of(0, (), steps=0, left=0).kind == "no_steps"
    assert ending_of(0, (), steps=3, left=0).kind == "too_short"
    assert ending_of(0, (), steps=0, left=2).kind == "background"


def test_a_reason_names_the_signal_and_the_last_line() -> None:
    assert ending_of(-11, ("about to fault",), steps=1, left=0).why == "killed by SIGSEGV: about to fault"
    assert ending_of(-35, ("done",), steps=1, left=0).why == "killed by signal 35: done"


def test_a_progress_bar_counts_as_its_last_state() -> None:
    tail = Tail()
    for step in range(5000):
        tail.feed(f"\r step {step}".encode())
    tail.feed(b"\ndone\n\n")
    assert tail.lines == (" step 4999", "done")


@given(st.lists(st.binary(max_size=200), max_size=30))
def test_any_output_becomes_few_printable_lines(chunks: list[bytes]) -> None:
    tail = Tail()
    for chunk in chunks:
        tail.feed(chunk)
    assert len(tail.lines) <= Tail.LINES
    assert all(line.strip() and line.replace("\t", "").isprintable() for line in tail.lines)
    assert ending_of(1, tail.lines, steps=0, left=0).kind
