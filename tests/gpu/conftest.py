"""Skips this folder, with the reason, where there is no CUDA device."""

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    if not ours:
        return
    why = why_not()
    if why is not None:
        for item in ours:
            item.add_marker(pytest.mark.skip(reason=why))


def why_not() -> str | None:
    """Why nothing of this can run here; None where it can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return None if torch.cuda.is_available() else "no CUDA device here"
