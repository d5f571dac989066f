"""Why a trial ended, told from what it printed; and what of its output is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.relaunch.trial.trial_endings import MOST_LINES, ending_of, last_lines


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


def test_a_progress_bar_counts_as_its_last_state(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.write_text("".join(f"\r step {step}" for step in range(5000)) + "\ndone\n\n")
    assert last_lines(output) == (" step 4999", "done")


@given(st.binary(max_size=5000))
def test_any_output_becomes_few_plain_lines(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    output = tmp_path_factory.getbasetemp() / "output"
    output.write_bytes(data)
    lines = last_lines(output)
    assert len(lines) <= MOST_LINES
    assert all(line.strip() and line.replace("\t", "").isprintable() for line in lines)
    assert ending_of(1, lines, steps=0, left=0).kind
