"""Each trial meets at a port of its own, whatever launcher is used and however it was told its port."""

from __future__ import annotations

import socket

import pytest

from autobrrr.relaunch.trial.trial_launch import free_port, with_own_port


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py --master_port 1", "python train.py --master_port 1"),
        ("torchrun --nproc_per_node 2 train.py", "torchrun --nproc_per_node 2 --master_port 7 train.py"),
        ("torchrun --master_port 29500 train.py", "torchrun --master_port 29500 --master_port 7 train.py"),
        (
            "torchrun --rdzv-endpoint=localhost:29400 train.py",
            "torchrun --rdzv-endpoint=localhost:29400 --master_port 7 --rdzv_endpoint localhost:7 train.py",
        ),
        (
            "torchrun --rdzv_endpoint 127.0.0.1:1 train.py",
            "torchrun --rdzv_endpoint 127.0.0.1:1 --master_port 7 --rdzv_endpoint localhost:7 train.py",
        ),
        (
            "torchrun --rdzv_endpoint node0:29400 train.py",
            "torchrun --rdzv_endpoint node0:29400 --master_port 7 train.py",
        ),
        (
            "python -m torch.distributed.run --master_port 1 t.py --master_port 2",
            "python -m torch.distributed.run --master_port 1 --master_port 7 t.py --master_port 2",
        ),
        ("torchrun -- train.py --a 1", "torchrun --master_port 7 -- train.py --a 1"),
        ("accelerate launch train.py", "accelerate launch --main_process_port 7 train.py"),
        ("/usr/bin/deepspeed train.py", "/usr/bin/deepspeed --master_port 7 train.py"),
        (
            "torchrun -m package.train --master_port 1",
            "torchrun --master_port 7 -m package.train --master_port 1",
        ),
        ("python -m train --strategy deepspeed", "python -m train --strategy deepspeed"),
        ("deepspeed --module train --lr 1", "deepspeed --master_port 7 --module train --lr 1"),
        (
            "numactl -m 0 torchrun --master_port 1 t.py",
            "numactl -m 0 torchrun --master_port 1 --master_port 7 t.py",
        ),
        (
            "time numactl -m 0 torchrun --master_port 1 t",
            "time numactl -m 0 torchrun --master_port 7 --master_port 1 t",
        ),
    ],
)
def test_a_launcher_meets_at_the_free_port(command: str, expected: str) -> None:
    words, variables = with_own_port(command.split(), {"MASTER_PORT": "29500", "A": "b"}, lambda: 7)
    assert " ".join(words) == expected
    assert variables == {"MASTER_PORT": "7", "A": "b"}


def test_a_free_port_can_be_taken() -> None:
    with socket.socket() as mine:
        mine.bind(("127.0.0.1", free_port()))
