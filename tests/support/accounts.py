"""Accounts of runs, made up."""

from pathlib import Path

import msgspec

from autobrrr.prove.run_account import AccountedStep, RunAccount


def step(number: int, **fields: object) -> AccountedStep:
    """A step of a run that learns: its numbers differ from step to step."""
    usual = AccountedStep(
        step=number,
        backwards=1,
        optimizers=1,
        samples=2,
        tokens=16,
        evaluated=0,
        rows=[f"{number}-{row}" for row in range(2)],
        loss=2.0 - 0.01 * number,
        flops={"float32": 1000} if number % 4 == 0 else None,
        places=[("first", "train.py:9", 100 + number, 5.0)] if number < 3 else [],
        gradient=1.0 + 0.01 * number,
        parameters=1000 + number,
        moved=0.1,
        gradient_signs=[1.0, -1.0],
        moved_signs=[0.1, -0.1],
        updated=50,
        elements=50,
        precision="highest",
    )
    return msgspec.structs.replace(usual, **fields)


def account(count: int = 16, *, ended: bool = True, **fields: object) -> RunAccount:
    """A run in which every step has these fields."""
    return RunAccount(file=Path("none"), steps=[step(i, **fields) for i in range(count)], ended=ended)


def noted(*notes: tuple[str, object, int], **fields: object) -> RunAccount:
    """A run with notes beside its steps."""
    found = account(**fields)  # type: ignore[arg-type]
    found.notes += notes
    return found
