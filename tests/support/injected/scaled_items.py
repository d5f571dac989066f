"""Code of a dataset's that imports the settings of its package as it runs."""

from __future__ import annotations


def from_its_package(number: float) -> float:
    """As `number * scale`."""
    from . import item_settings

    return number * item_settings.scale


def from_a_module_beside(number: float) -> float:
    """The same."""
    from .item_settings import scale

    return number * scale
