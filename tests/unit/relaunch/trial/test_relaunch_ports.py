"""Each trial meets at a port of its own, whatever launcher is used and however it was told its port."""

from __future__ import annotations

import socket

import pytest

from autobrrr.relaunch.trial.trial_factory import free_port, with_own_port


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py --port 1", "python train.py --port 1"),
        ("python train.py --master_port 1", "python train.py --master_port 7"),
        ("torchrun --nproc_per_node 2 train.py", "torchrun --nproc_per_node 2 train.py"),
        ("torchrun --master-port=29500 train.py", "torchrun --master-port=7 train.py"),
        ("torchrun --rdzv-endpoint=localhost:29400 t.py", "torchrun --rdzv-endpoint=localhost:7 t.py"),
        ("torchrun --rdzv_endpoint 127.0.0.1:1 t.py", "torchrun --rdzv_endpoint 127.0.0.1:7 t.py"),
        ("torchrun --rdzv_endpoint node0:29400 t.py", "torchrun --rdzv_endpoint node0:29400 t.py"),
        ("accelerate launch train.py", "accelerate launch --main_process_port 7 train.py"),
        ("/usr/bin/deepspeed train.py", "/usr/bin/deepspeed --master_port 7 train.py"),
        ("python -m train --strategy deepspeed", "python -m train --strategy deepspeed"),
    ],
)
def test_a_launcher_meets_at_the_free_port(command: str, expected: str) -> None:
    words, variables = with_own_port(command.split(), {"MASTER_PORT": "29500", "A": "b"}, lambda: 7)
    assert " ".join(words) == expected
    assert variables == {"MASTER_PORT": "7", "PET_MASTER_PORT": "7", "A": "b"}


def test_a_free_port_can_be_taken() -> None:
    with socket.socket() as mine:
        mine.bind(("127.0.0.1", free_port()))
