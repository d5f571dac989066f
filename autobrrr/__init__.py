"""autobrrr: find out why a running PyTorch job is slow, and make it faster while it runs.

    with autobrrr.attach(pid) as session:
        print(session.diagnose().reason)
        session.tune(for_s=60)

Nothing is imported before it is used. `autobrrr.errors.AutobrrrError` is what everything here raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autobrrr.api import Session, attach, diagnose, tune

__version__ = "0.2.0"
__all__ = ["Session", "__version__", "attach", "diagnose", "tune"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'autobrrr' has no attribute {name!r}")
    from autobrrr import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
