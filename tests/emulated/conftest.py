"""Everything here runs on the emulated CUDA device: `make emulated` builds it and starts pytest on it."""

import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def what_nvml_shows_is_of_these_tests() -> Iterator[None]:
    """Jobs that are killed leave what they told NVML: in a folder of ours, which goes with us."""
    folder = tempfile.mkdtemp(prefix="emulated-device-")
    os.environ["EMU_SHM"] = folder
    yield
    shutil.rmtree(folder, ignore_errors=True)


class Device:
    """What the emulated device can be told and asked from Python."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.emu_rule.argtypes = [ctypes.c_char_p, ctypes.c_double]
        library.emu_scale.argtypes = [ctypes.c_double]
        library.emu_ahead_us.restype = ctypes.c_double
        self._library = library
        self._planted: set[str] = set()

    def plant(self, part_of_name: str, us: float) -> None:
        """How long kernels take whose name has this part."""
        self._planted.add(part_of_name)
        self._library.emu_rule(part_of_name.encode(), us)

    def ahead_us(self) -> float:
        """How far the host has run ahead of the device."""
        return float(self._library.emu_ahead_us(0))

    def cupti_attached(self) -> bool:
        return bool(self._library.emu_cupti_attached())

    def forget(self) -> None:
        for part in self._planted:
            self._library.emu_rule(part.encode(), -1.0)


@pytest.fixture
def device() -> Iterator[Device]:
    library = ctypes.CDLL(None)
    if not hasattr(library, "emu_rule"):
        pytest.skip("not on the emulated device: make emulated")
    import torch

    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA: make emulated")
    device = Device(library)
    yield device
    torch.cuda.synchronize()
    device.forget()
