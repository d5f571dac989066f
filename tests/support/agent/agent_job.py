"""Inside the job: starts the agent on a raw thread as an injection would, and takes fingerprints."""

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
