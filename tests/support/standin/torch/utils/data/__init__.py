"""A loader with torch's names."""

from . import dataloader
from .dataloader import DataLoader

__all__ = ["DataLoader", "dataloader"]
