"""Fixtures that every room uses, and the rule that no test leaves a process behind."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from support import training
from support.attach import eventually

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in a shell's background: programs
    signal.signal(signal.SIGINT, signal.default_int_handler)  # that tests start would ignore Ctrl-C


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Modules and tests stay until the end: no collection of garbage walks through them, 0.3 s each time."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[..., training.TrainingJob]]:
    """Starts training jobs; those that still run at the end of the test are killed."""
    started: list[training.TrainingJob] = []

    def start(name: str, *words: str, **options: object) -> training.TrainingJob:
        started.append(training.start(name, tmp_path, *words, **options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for each in started:
        each.kill()


@pytest.fixture(scope="session")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], training.Finished]]:
    """What the plain job trains without us in so many steps: one run for all tests, stopped between them."""
    run = training.start("plain", tmp_path_factory.mktemp("untouched"), *training.EVERY, "--tell")
    run.process.send_signal(signal.SIGSTOP)

    def at(steps: int) -> training.Finished:
        def told() -> list[str]:
            return [line.split()[2] for line in run.lines if line.startswith(f"told {steps} ")]

        if not told():
            run.process.send_signal(signal.SIGCONT)
            eventually(lambda: told() or not run.alive(), 300)
            run.process.send_signal(signal.SIGSTOP)
        return training.Finished(steps=steps, fingerprint=told()[0])

    yield at
    run.kill()


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    """What a test compiled in this process must not make the next one's job a compiled one."""
    yield
    ours, torch = map(sys.modules.get, ("autobrrr.agent.remedies.compile.compile_models", "torch"))
    if ours and torch:
        ours._release(torch)
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
        sys.modules["torch._dynamo.utils"].counters.clear()


@pytest.fixture(autouse=True)
def no_process_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """No process that works in the test's own folders may outlive an integration test."""
    if request.node.get_closest_marker("integration") is None:
        yield
        return
    runtime = str(request.getfixturevalue("tmp_path") / "run")
    yield
    left = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("XDG_RUNTIME_DIR") == runtime:
                left.append(process)
        except (psutil.Error, OSError):
            continue
    _, stuck = psutil.wait_procs(left, timeout=5)
    for process in stuck:
        process.kill()
    assert not stuck, [process.cmdline() for process in stuck]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """torch computes on one thread: sums come out the same."""
    import torch  # most tests do without

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def first_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of tests, which this process has imported, are not a job's own: they say `create_graph`."""
    monkeypatch.setattr(
        "autobrrr.agent.remedies.compile.compile_models.second_order_file", lambda modules: None
    )


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are found and counted as ever, and run eagerly: no C++ compiler starts for each."""
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, *_, **options: graph)
