"""Ways into a running process.

`autobrrr.attach` is also a function of the Python API, and this room has its name: so it can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType


class _CallableRoom(ModuleType):
    def __call__(self, *args: object, **options: object) -> object:
        from importlib import import_module

        return import_module("autobrrr.api").attach(*args, **options)


sys.modules[__name__].__class__ = _CallableRoom
