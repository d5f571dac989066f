"""A running job and a trace of its loop are judged alike: the same limit, or one of them names nobody."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autobrrr.diagnosis.part_names import WORDS
from autobrrr.records import NAMES_NOBODY
from autobrrr.trace.reading.trace_source import TraceFile
from autobrrr.trace.trace_analysis import analyse
from support.day_cases import by_day
from support.training import autobrrr, environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

LOOP = """
import sys, time, torch
from torch import nn
from torch.utils.data import DataLoader

kind, trace = sys.argv[1:]
torch.set_num_threads(1)
width, batch = (1024, 256) if kind == "kernels" else (32, 8)

class Items:
    def __len__(self): return 1 << 20
    def __getitem__(self, at):
        if kind == "input": time.sleep(0.002)
        return data[at % 64]

data = torch.randn(64, width)
model = nn.Sequential(*[nn.Linear(width, width) for _ in range(2 if kind == "kernels" else 12)])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

def step(inputs):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
    if kind == "host": sum(each % 7 for each in range(60_000))

batches = iter(DataLoader(Items(), batch_size=batch if kind != "kernels" else 64))
inputs = torch.randn(batch, width)
with torch.profiler.profile(
    activities=[torch.profiler.ProfilerActivity.CPU],
    schedule=torch.profiler.schedule(wait=2, warmup=2, active=8),
    on_trace_ready=lambda profiler: profiler.export_chrome_trace(trace),
) as profiler:
    for _ in range(12):
        step(next(batches) if kind == "input" else inputs)
        profiler.step()
print("traced", flush=True)
while True:
    step(next(batches) if kind == "input" else inputs)
"""


@contextmanager
def running(kind: str, folder: Path) -> Iterator[tuple[int, Path]]:
    """A job that has traced some of its steps and trains on."""
    script, trace = folder / "loop.py", folder / "trace.json"
    script.write_text(LOOP)
    command = [sys.executable, str(script), kind, str(trace)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(folder)) as job:
        assert job.stdout.readline() == "traced\n"
        yield job.pid, trace
        job.kill()


@pytest.mark.parametrize("kind", by_day(["input", "host", "kernels", "dispatch"], "input".__eq__))
def test_a_job_and_its_trace_get_one_answer(kind: str, tmp_path: Path) -> None:
    with running(kind, tmp_path) as (pid, trace):
        (seen,) = analyse([TraceFile(name=trace.name, path=trace)]).traces
        found = autobrrr(tmp_path, "diagnose", str(pid), "--json", "--for", "20s")
    assert found.code == 0, found.stderr
    live, truth = found.json["limit"], "host" if kind == "dispatch" else kind
    assert {live, seen.limit} <= {truth, *NAMES_NOBODY}, (found.json["limit_reason"], seen.limit_reason)
    assert seen.limit == truth or kind == "dispatch"  # operators too short: a trace can't tell
    if kind == "input":
        assert WORDS["input"] in seen.limit_reason
        assert live in NAMES_NOBODY or WORDS["input"] in found.json["limit_reason"]
