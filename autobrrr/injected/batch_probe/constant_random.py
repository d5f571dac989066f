"""While the batch dimension is verified, random numbers are constants.

Half a batch draws other numbers than the batch does, so a forward that samples (a variational
autoencoder) could never be compared with its halves.
"""

from __future__ import annotations

from types import ModuleType

from ..live_torch.dispatch_modes import Mode, Operator, dispatch_mode

_SAMPLERS = (
    "rand",
    "rand_like",
    "randn",
    "randn_like",
    "normal",
    "normal_",
    "uniform_",
    "bernoulli",
    "bernoulli_",
    "exponential_",
    "log_normal_",
    "cauchy_",
)


def quiet_random(torch: ModuleType) -> Mode:
    """A dispatch mode, not yet entered, in which samplers give 0.5."""

    def handler(operator: Operator, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        result = operator(*args, **kwargs)
        name = str(getattr(operator, "__name__", "")).partition(".")[0]
        if name in _SAMPLERS and isinstance(result, torch.Tensor):
            result.fill_(0.5)
        return result

    return dispatch_mode(torch, handler)
