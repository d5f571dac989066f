"""What another process compiles, a job finds in torch's cache: with real torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from support.training import ran

pytestmark = pytest.mark.integration

JOB = """
import os, sys, time, torch, torch._functorch.config
from torch import nn
from autobrrr.agent.remedies.compile.cache_graphs import CacheGraphs
from autobrrr.sidecar.process.cache_filler import CacheFiller

torch.manual_seed(0)
torch.set_num_threads(1)
torch._functorch.config.force_non_lazy_backward_lowering = True  # as the remedy does
model = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.BatchNorm1d(16), nn.Dropout(0.1))
batch, options = torch.randn(3, 8, 16)[1], {"fallback_random": True}
model(batch).sum().backward()  # a job has gradients
graphs = CacheGraphs(torch, options)

def call(module, batch):
    return module._call_impl(batch)

with torch.autocast("cpu", torch.bfloat16):
    torch.compile(call, backend=graphs)(model, batch).sum().backward()
    event, fd = graphs.sent()
    assert event == {"event": "graphs", "fd": True}, event
    filler = CacheFiller(os.getpid(), os.pread(fd, 1 << 28, 0))
    while not filler.done():
        time.sleep(0.1)
    assert filler.why is None, filler.why
    torch._dynamo.utils.counters.clear()
    torch.compile(call, options=options)(model, batch).sum().backward()
print(dict(torch._dynamo.utils.counters["aot_autograd"]))
"""


def test_the_job_finds_its_graphs_compiled(tmp_path: Path) -> None:
    environment = {
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = ran([sys.executable, "-c", JOB], timeout=400, env=environment)
    assert done.returncode == 0, done.stderr
    assert "'autograd_cache_hit': 1" in done.stdout


def test_a_model_that_was_not_called_has_no_graphs() -> None:
    import torch

    from autobrrr.agent.remedies.compile.cache_graphs import CacheGraphs

    assert CacheGraphs(torch, {}).sent() == ({"event": "graphs", "why": "the model was not called"}, None)
