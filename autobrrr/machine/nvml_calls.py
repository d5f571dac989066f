"""Guarded calls of NVML: a figure, or None; never an exception.

In: the module `pynvml` of the distribution nvidia-ml-py, imported when a poller's thread first needs it.
A function that this driver, device or user can't have is asked for once only.
"""

from __future__ import annotations

import importlib
from types import ModuleType

FINAL = (
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    "NVML_ERROR_DEPRECATED",
)
LOST = ("NVML_ERROR_UNINITIALIZED", "NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED")


def load_nvml() -> ModuleType | None:
    """The initialised library; None without the package, a driver or a device."""
    try:
        module = importlib.import_module("pynvml")
        module.nvmlInit()
    except Exception:  # noqa: BLE001 - whatever keeps it away, there is no figure
        return None
    return module


class NvmlCalls:
    """Everything that is asked of the driver goes through here.

    Attributes:
        lost: The device or the driver has gone; nothing more is asked.
    """

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.lost = False
        self._refused: set[str] = set()
        self._final = self._codes(FINAL)
        self._gone = self._codes(LOST)

    def ask(self, name: str, *args: object) -> object:
        """What the function gives; None where it fails or is not there."""
        if self.lost or name in self._refused:
            return None
        function = getattr(self.module, name, None)
        if function is None:
            self._refused.add(name)
            return None
        try:
            found: object = function(*args)
        except Exception as error:  # noqa: BLE001 - one figure less
            code = getattr(error, "value", None)
            if code in self._final:
                self._refused.add(name)
            self.lost = self.lost or code in self._gone
            return None
        return found

    def whole(self, name: str, *args: object) -> int | None:
        """The same for functions that give a whole number."""
        found = self.ask(name, *args)
        return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None

    def number(self, name: str) -> int:
        """A constant of the library; -1 where it has none, which no function accepts."""
        found = getattr(self.module, name, None)
        return found if isinstance(found, int) else -1

    def _codes(self, names: tuple[str, ...]) -> frozenset[int]:
        return frozenset(code for code in map(self.number, names) if code >= 0)
