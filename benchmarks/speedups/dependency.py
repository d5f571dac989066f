"""A package that the job depends on: its second version is slower."""

import torch
from torch import Tensor

VERSION = 1


def normalised(batch: Tensor) -> Tensor:
    """The same words, checked."""
    if VERSION == 1:
        return batch
    return torch.tensor([[int(str(int(word))) for word in row] for row in batch])
