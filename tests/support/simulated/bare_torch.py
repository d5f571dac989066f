"""A torch on which no mode is on, which uses no device, and that has nothing else."""

from types import ModuleType, SimpleNamespace


def bare_torch() -> ModuleType:
    """One of its own for each call."""
    torch = ModuleType("torch")
    stacks = ("_len_torch_dispatch_stack", "_len_torch_function_stack")
    torch._C = SimpleNamespace(**dict.fromkeys(stacks, lambda: 0))  # type: ignore[attr-defined]
    torch.cuda = SimpleNamespace(is_initialized=lambda: False)  # type: ignore[attr-defined]
    torch.is_warn_always_enabled = lambda: False  # type: ignore[attr-defined]
    torch.set_warn_always = lambda on: None  # type: ignore[attr-defined]
    return torch
