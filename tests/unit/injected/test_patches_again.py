"""A patch of ours that the job patches over on and off is never built upon itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType

from autobrrr.injected.live_torch.patches import Patch, first


def test_ours_that_the_job_put_back_is_known_again() -> None:
    owner = ModuleType("owner")
    calls: list[str] = []
    original: Callable[[], None] = lambda: None  # noqa: E731 - to be told again by identity
    owner.f = original  # type: ignore[attr-defined]
    patch = Patch(owner, "f", first(lambda: calls.append("ours")))

    for _ in range(3000):
        patch.put_on()
        saved = owner.f
        owner.f = functools.wraps(saved)(lambda below=saved: below())  # the job, over ours
        assert not patch.take_off()
        patch.put_on()  # ours, over the job's
        assert patch.take_off()
        owner.f = saved  # the job is done, and puts ours back
        patch.put_on()
        calls.clear()
        owner.f()
        assert calls == ["ours"]
        assert patch.take_off()
    assert owner.f is original
