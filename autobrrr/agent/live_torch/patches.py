"""Attributes of torch that stand replaced for a while, and how they are put back.

Every replacement is one `setattr`: atomic under the GIL, so it needs no agreement with the thread
that is training. The very object that stood in the owner's `__dict__` is put back. Where somebody
has patched over ours meanwhile, theirs stays and ours becomes a pass-through that is reported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

Build = Callable[[Callable[..., object]], object]


class Patch:
    """One attribute of a class or module; can be put on and taken off many times."""

    def __init__(self, owner: object, name: str, build: Build) -> None:
        self.name = f"{getattr(owner, '__name__', owner)}.{name}"
        self._owner = owner
        self._attribute = name
        self._build = build
        self._original = vars(owner)[name]  # an own attribute: never a delattr on the way back
        self._ours = build(self._original)

    def put_on(self) -> None:
        """Replace what stands there now."""
        found = vars(self._owner)[self._attribute]
        if found is not self._original and found is not self._ours:
            self._original = found
            self._ours = self._build(found)
        setattr(self._owner, self._attribute, self._ours)

    def take_off(self) -> bool:
        """Put the original back. False: somebody has patched over it; nothing was changed."""
        found = vars(self._owner).get(self._attribute)
        if found is self._ours:
            setattr(self._owner, self._attribute, self._original)
            return True
        return found is self._original


def prepared(owner: object | None, name: str, build: Build) -> list[Patch]:
    """A patch of an attribute that the owner has as its own; none where it has not."""
    return [] if owner is None or name not in vars(owner) else [Patch(owner, name, build)]


def patched(owner: object | None, name: str, build: Build) -> list[Patch]:
    """The same, put on."""
    made = prepared(owner, name, build)
    for one in made:
        one.put_on()
    return made


def take_off_all(patches: list[Patch]) -> list[str]:
    """Take patches off, the youngest first, and empty the list; names of those that had to stay."""
    left = [one.name for one in reversed(patches) if not one.take_off()]
    patches.clear()
    return left


def around(
    before: Callable[..., object] = lambda *_, **__: None, after: Callable[..., object] | None = None
) -> Build:
    """Builds a replacement that calls `before`, what stood there and, always, `after` as it was called."""

    def build(original: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(original)
        def call(*args: object, **kwargs: object) -> object:
            before(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                if after is not None:
                    after(*args, **kwargs)

        return call

    return build
