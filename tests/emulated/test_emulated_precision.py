"""TF32 switched on and off, however the job has set float32 products: what it had is what it has again."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("device")

STATES = {
    "nothing set": "pass",
    "old flags": "torch.set_float32_matmul_precision('highest'); backends.cudnn.allow_tf32 = False",
    "products by the new values": "backends.cuda.matmul.fp32_precision = 'ieee'",
    "convolutions by the new values": "backends.cudnn.conv.fp32_precision = 'ieee'",
    "all of CUDA": "backends.cudnn.fp32_precision = 'ieee'",
    "everything": "backends.fp32_precision = 'ieee'",
    "everything, and products apart": (
        "backends.fp32_precision = 'ieee'; backends.cuda.matmul.fp32_precision = 'ieee'"
    ),
    "products in TF32": "backends.cuda.matmul.fp32_precision = 'tf32'",
    "an old flag, then a new value": (
        "torch.set_float32_matmul_precision('high'); backends.cuda.matmul.fp32_precision = 'ieee'"
    ),
}
SCRIPT = """
import os, sys, torch
from torch import backends
from autobrrr.injected.remedies.model.float32_settings import Float32Settings, INHERITED
import autobrrr.injected.remedies.model.float32_settings as settings_module

read, write = torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter
EACH = [(backend, op) for backend in ("cuda", "mkldnn") for op in ("all", "matmul", "conv", "rnn")]

def asked(what):
    try:
        return what()
    except RuntimeError:
        return "raises"

def picture():
    flags = [asked(torch.get_float32_matmul_precision), asked(lambda: backends.cudnn.allow_tf32)]
    now = [read("generic", "all"), *(read(*each) for each in EACH), *flags]
    former = now[0]
    seen = [now]
    for value in ("tf32", "ieee"):  # and what a later change by the job would do
        write("generic", "all", value)
        seen.append([read(*each) for each in EACH])
    write("generic", "all", former)
    return seen

def goes_as_it_came():
    before = picture()
    readable = "raises" not in before[0]
    undo = Float32Settings(torch).allow_tf32()
    assert read("cuda", "matmul") == "tf32"
    assert not readable or "raises" not in picture()[0], "the job could read its flags before"
    undo()
    assert picture() == before, (before, picture())

    with Float32Settings(torch).exact():
        assert [read("cuda", op) for op in ("matmul", "conv", "rnn")] == ["ieee"] * 3
    assert picture() == before, "exact for a moment"

    class Broken(Float32Settings):
        asked = 0
        def convolutions(self):
            self.asked += 1
            if self.asked == 3:  # products have been switched by then
                raise ValueError("half way")
            return super().convolutions()

    try:
        Broken(torch).allow_tf32()
    except settings_module.Refused as refused:
        assert "half way" in str(refused)
    else:
        raise AssertionError("not refused")
    assert picture() == before, "refused, and TF32 stayed on"

    undo = Float32Settings(torch).allow_tf32()
    write("cuda", "matmul", "ieee")  # the job sets it itself meanwhile
    undo()
    assert read("cuda", "matmul") == "ieee"

states = eval(sys.stdin.read())
for name, state in states.items():
    child = os.fork()  # some of these settings can't be taken back
    if child == 0:
        exec(state)
        goes_as_it_came()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
print("all as before")
"""


def test_tf32_goes_as_it_came_also_when_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=repr(STATES),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "all as before" in done.stdout, done.stderr[-2000:]
