"""Inside the job: starts the agent on a raw thread as an injection would, and takes snapshots."""

import _thread
import os
import select
import sys
import time


def begin(**fields: object) -> object:
    """Start the agent; returns a lock that is free once its thread has ended."""
    from autobrrr.agent import entry

    boot: dict[str, object] = {
        "token": "test",
        "link": os.environ.get("AGENT_LINK"),
        "listen": None,
        "method": "ptrace",
        "readonly": False,
        "bundle": "source",
        "plan": None,
        "outcome": None,
        **fields,
    }
    ended = _thread.allocate_lock()
    ended.acquire()

    def run() -> None:
        try:
            entry.start(boot)
        finally:
            ended.release()

    _thread.start_new_thread(run, ())
    return ended


def told() -> bool:
    """Whether the test has written a line to our standard input."""
    if select.select([sys.stdin], [], [], 0)[0]:
        sys.stdin.readline()
        return True
    return False


def wait_ended(ended: object, timeout_s: float = 30) -> None:
    """Until the agent's thread is gone."""
    assert ended.acquire(timeout=timeout_s)  # type: ignore[attr-defined]
    time.sleep(0.05)


def snapshot(torch: object, model: object, optimizer: object) -> dict[str, object]:
    """Everything that the agent might have changed, by identity and order."""
    from torch.optim import optimizer as optim
    from torch.utils.data import dataloader

    module = sys.modules["torch.nn.modules.module"]
    owners = {
        "Tensor": torch.Tensor,
        "autograd": torch.autograd,
        "Optimizer": torch.optim.Optimizer,
        "class": type(optimizer),
        "Module": module.Module,
        "GradScaler": sys.modules["torch.amp.grad_scaler"].GradScaler,
        "base iterator": dataloader._BaseDataLoaderIter,
        "single iterator": dataloader._SingleProcessDataLoaderIter,
        "multi iterator": dataloader._MultiProcessingDataLoaderIter,
        "model": model,
        "optimizer": optimizer,
        "updates": sys.modules["torch.optim.adam"],
    }
    seen: dict[str, object] = {
        # None in the slot for compiled calls: torch takes it for nothing there.
        name: [(k, id(v)) for k, v in vars(owner).items() if (k, v) != ("_compiled_call_impl", None)]
        for name, owner in owners.items()
    }
    for name in ("_global_forward_pre_hooks", "_global_forward_hooks"):
        seen[name] = list(getattr(module, name))
    for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
        seen[name] = list(getattr(optim, name))
    seen["root hooks"] = [
        list(getattr(model, name))
        for name in ("_forward_hooks", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs")
    ]
    seen["optimizer hooks"] = [
        list(optimizer._optimizer_step_pre_hooks),
        list(optimizer._optimizer_step_post_hooks),
    ]
    seen["fds"] = sorted(
        os.readlink(f"/proc/self/fd/{fd}").split(":")[0]
        for fd in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{fd}")
    )
    seen["threads"] = len(os.listdir("/proc/self/task"))
    seen["modes"] = torch._C._len_torch_dispatch_stack()
    return seen


def fingerprint(torch: object, *things: object) -> str:
    """Digest of weights, buffers, optimizer state and the random number generators."""
    import hashlib
    import random

    digest = hashlib.md5()

    def take(thing: object) -> None:
        if isinstance(thing, torch.Tensor):
            digest.update(thing.detach().contiguous().view(-1).to(torch.float64).numpy().tobytes())
        elif isinstance(thing, dict):
            for key in thing:
                digest.update(str(key).encode())
                take(thing[key])
        elif isinstance(thing, (list, tuple)):
            for part in thing:
                take(part)
        else:
            digest.update(repr(thing).encode())

    for thing in things:
        take(thing.state_dict())
    take(torch.get_rng_state())
    take(random.getstate())
    return digest.hexdigest()
