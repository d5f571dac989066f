"""The recipes that come with the program: in the wheel beside the code, in a checkout beside the package."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def shipped(package: Path = PACKAGE) -> dict[str, Path]:
    """Shipped recipes by name."""
    for folder in (package / "_recipes", package.parent / "recipes"):
        found = {file.stem: file for file in sorted(folder.glob("*.toml"))}
        if found:
            return found
    return {}
