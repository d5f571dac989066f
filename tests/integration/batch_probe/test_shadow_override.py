"""`--probe` overrides what a replay would show once more, never what it would change."""

from __future__ import annotations

import io
import logging.handlers
import os
import queue
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from autobrrr.injected.job_code.effects import kept_by_the_job
from support.batch_probe.shadow_attributes import ATTRIBUTES
from support.batch_probe.shadow_loop import Outcome, train
from support.batch_probe.shadow_refused import trap
from support.batch_probe.shadow_traps import RANDOM_ONLY, TRAPS, Trap, job

pytestmark = pytest.mark.integration

STEPS = 48
OVERRIDDEN: dict[str, object] = {"override": True, "rounds": 2}
LOG = logging.getLogger("job")


def both(kind: type[Trap]) -> tuple[Outcome, object, Outcome, object]:
    """A run never attached and one probed with override, each with what the job has counted."""
    held: list[Trap] = []
    never = train(job(kind, held), STEPS, probe=False)
    counted = held[-1].told()
    outcome = train(job(kind, held), STEPS, probe=True, params=OVERRIDDEN)
    return never, counted, outcome, held[-1].told()


@pytest.mark.parametrize("kind", TRAPS + ATTRIBUTES)
def test_what_a_replay_would_change_is_refused_even_with_override(kind: type[Trap]) -> None:
    never, expected, outcome, counted = both(kind)
    assert outcome.fingerprint == never.fingerprint
    assert counted == expected
    assert outcome.probed is not None
    assert outcome.probed["status"] == "abstained"
    assert outcome.probed["points"] == []
    why = str(outcome.probed["why"])
    assert any(said in why for said in ("a replay would do it again", "put back", "own state")), why


@pytest.mark.parametrize("kind", RANDOM_ONLY)
def test_what_is_put_back_is_probed_with_override(kind: type[Trap]) -> None:
    never, expected, outcome, counted = both(kind)
    assert outcome.fingerprint == never.fingerprint
    assert counted == expected


class Shows(nn.Module):
    def __init__(self, log: Path) -> None:
        super().__init__()
        self.linear, self.path = nn.Linear(12, 4), str(log)
        self.file = log.open("a")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        LOG.debug("forward of %d", len(x))
        self.file.write(".")
        with open(self.path, "a") as file:
            print("forward", file=file)
        return self.linear(x)


def test_what_a_forward_shows_may_be_overridden(tmp_path: Path) -> None:
    held: list[Shows] = []

    def make() -> nn.Module:
        held.append(Shows(tmp_path / "log"))
        return held[-1]

    never = train(trap(make), STEPS, probe=False)
    refused = train(trap(make), STEPS, probe=True)
    outcome = train(trap(make), STEPS, probe=True, params=OVERRIDDEN)
    for shows in held:
        shows.file.close()
    assert refused.probed is not None
    assert refused.probed["status"] == "abstained"
    assert outcome.probed is not None
    assert outcome.probed["status"] == "ok", outcome.probed["why"]
    assert refused.fingerprint == outcome.fingerprint == never.fingerprint


class Tells:
    """A hook that only shows."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    def __call__(self, module: nn.Module, args: tuple[object, ...], result: torch.Tensor) -> None:
        print(type(module).__name__)


def test_a_hook_that_only_shows_may_be_overridden(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(module: nn.Module, args: tuple[object, ...], result: torch.Tensor) -> None:
        print(type(module).__name__)

    def make() -> nn.Module:
        model = nn.Sequential(nn.Linear(12, 8), nn.Linear(8, 4))
        model[0].register_forward_hook(shown)
        return model

    outcome = train(trap(make), STEPS, probe=True, params=OVERRIDDEN)
    assert outcome.probed is not None
    assert outcome.probed["status"] == "ok", outcome.probed["why"]


def test_a_hook_that_holds_what_nobody_can_put_back_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    def make() -> nn.Module:
        model = nn.Sequential(nn.Linear(12, 8), nn.Linear(8, 4))
        model[0].register_forward_hook(Tells())
        return model

    outcome = train(trap(make), STEPS, probe=True, params=OVERRIDDEN)
    assert outcome.probed is not None
    assert outcome.probed["status"] == "abstained"
    assert "_io.StringIO" in str(outcome.probed["why"])


class TellsWhereItStands(Trap):
    def __init__(self) -> None:
        super().__init__()
        self.file = Path(tempfile.mkstemp()[1]).open("w")  # noqa: SIM115 - it stays open

    def turn(self) -> int:
        self.file.write(".")
        return self.file.tell()

    def told(self) -> object:
        return self.file.tell()


class TellsByAnotherName(TellsWhereItStands):
    def turn(self) -> int:
        file = self.file
        file.write(".")
        return file.tell()


class MakesFiles(Trap):
    """A file that is there already ends the job."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.folder = 0, tempfile.mkdtemp()

    def turn(self) -> int:
        self.count += 1
        with open(f"{self.folder}/{self.count}", "x") as file:
            file.write(".")
        return self.count

    def told(self) -> object:
        return len(list(Path(self.folder).iterdir()))


class Counting(logging.Handler):
    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


class Logs(Trap):
    """The forward does not ask what became of it."""

    def __init__(self, handler: logging.Handler | None = None) -> None:
        super().__init__()
        LOG.handlers[:] = [handler or Counting()]
        LOG.setLevel(logging.DEBUG)

    def turn(self) -> int:
        LOG.info("a turn")
        return 1

    def told(self) -> object:
        return LOG.handlers[0].count  # type: ignore[attr-defined]


class AsksItsLogger(Logs):
    def turn(self) -> int:
        LOG.info("a turn")
        return int(LOG.handlers[0].count)  # type: ignore[attr-defined]


class LogsForLater(Logs):
    def __init__(self) -> None:
        super().__init__(logging.handlers.MemoryHandler(1 << 20))

    def told(self) -> object:
        return len(LOG.handlers[0].buffer)  # type: ignore[attr-defined]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    level = LOG.level
    yield
    LOG.handlers[:] = []
    LOG.setLevel(level)


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    "kind", [TellsWhereItStands, TellsByAnotherName, MakesFiles, AsksItsLogger, Logs, LogsForLater]
)
def test_what_shows_and_is_asked_what_it_showed_is_refused_even_with_override(kind: type[Trap]) -> None:
    never, expected, outcome, counted = both(kind)
    assert outcome.fingerprint == never.fingerprint
    assert counted == expected
    assert outcome.probed is not None
    assert outcome.probed["status"] == "abstained"
    assert "a replay would do it again" in str(outcome.probed["why"])


SAID: list[object] = []


class Numbered(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        SAID.append(record)
        return super().format(record)


class Said(io.TextIOBase):
    def write(self, text: str) -> int:
        SAID.append(text)
        return len(text)


def by_formatter() -> logging.Handler:
    handler = logging.StreamHandler(open(os.devnull, "w"))  # noqa: SIM115 - it stays open
    handler.setFormatter(Numbered())
    return handler


HANDLERS: dict[str, Callable[[], logging.Handler]] = {
    "a formatter": by_formatter,
    "a stream of its class": lambda: logging.StreamHandler(Said()),
    "a stream that is read": lambda: logging.StreamHandler(io.StringIO()),
    "a buffer": lambda: logging.handlers.MemoryHandler(1 << 20),
    "a queue": lambda: logging.handlers.QueueHandler(queue.Queue()),
}


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
def test_what_counts_what_is_logged_is_no_matter_of_classes_alone(
    handler: Callable[[], logging.Handler], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kept_by_the_job() is None
    monkeypatch.setattr(logging.getLogger("job"), "handlers", [handler()])
    assert "what is logged" in str(kept_by_the_job())


def test_a_function_of_the_jobs_that_makes_filters_or_writes_what_is_shown_may_count_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, stream = logging.getLogger("job"), logging.StreamHandler(open(os.devnull, "w"))  # noqa: SIM115
    monkeypatch.setattr(log, "handlers", [stream])
    stream.flush = sys.stderr.flush  # type: ignore[method-assign] # as transformers does
    assert kept_by_the_job() is None
    with monkeypatch.context() as patch:
        patch.setattr(log, "filters", [lambda record: not SAID.append(record)])
        assert "a function" in str(kept_by_the_job())
    with monkeypatch.context() as patch:
        patch.setattr(stream.stream, "write", SAID.append, raising=False)
        assert kept_by_the_job() is not None
    with monkeypatch.context() as patch:
        patch.setattr(logging, "_logRecordFactory", lambda *args: SAID.append(args))
        assert "a function" in str(kept_by_the_job())
    assert kept_by_the_job() is None
