"""The fingerprint of a training run: weights, buffers, optimizer state, every random state."""

import hashlib
import random

import numpy
import torch


def fingerprint(*parts: torch.nn.Module | torch.optim.Optimizer) -> str:
    """md5 over all tensors of modules and optimizers, and over the random states."""
    digest = hashlib.md5()
    for part in parts:
        for name, value in sorted(_tensors(part.state_dict()), key=lambda pair: pair[0]):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    digest.update(torch.get_rng_state().numpy().tobytes())
    digest.update(repr(random.getstate()).encode())
    digest.update(numpy.random.get_state()[1].tobytes())
    return digest.hexdigest()


def _tensors(tree: object, path: str = "") -> list[tuple[str, torch.Tensor]]:
    if isinstance(tree, torch.Tensor):
        return [(path, tree.reshape(-1))]
    if isinstance(tree, dict):
        return [found for key, value in tree.items() for found in _tensors(value, f"{path}.{key}")]
    if isinstance(tree, list | tuple):
        return [found for index, value in enumerate(tree) for found in _tensors(value, f"{path}.{index}")]
    return []
