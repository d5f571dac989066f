"""The listener turns all that can happen to a session into a view, and every request into a sentence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

import pytest

from autobrrr.client.session_client import Client
from autobrrr.errors import AutobrrrError, CannotAttach
from autobrrr.records.events import Event
from autobrrr.records.session_requests import Measure, UndoRemedy
from autobrrr.records.wire_answers import ActivityLine, Details, LogTail, SessionEnding, SessionFacts
from autobrrr_tui.sources import live_source
from autobrrr_tui.sources.live_source import LiveSource
from autobrrr_tui.view_state import ScreenStanding, View
from support.screens import tui
from support.sessions.client import PlayedClient

PATIENCE_S = 20.0


class FakeClient(PlayedClient):
    """A connection whose events the test puts in; an exception among them is raised."""

    def __init__(self, **facts: object) -> None:
        known = {"pid": 8091, "readonly": False, "outside": False, "probing": "on"}
        self.facts = SessionFacts(**{**known, **facts})  # type: ignore[arg-type]
        self.ending: SessionEnding | None = None
        self.inbox: SimpleQueue[Event | Exception | SessionEnding] = SimpleQueue()
        self.calls: list[tuple[str, object]] = []
        self.refusal: AutobrrrError | None = None
        self.logged: list[str] = []
        self.left = threading.Event()

    def events(self, *, for_s: float, every_s: float) -> Iterator[Event]:
        try:
            word = self.inbox.get(timeout=PATIENCE_S)
        except Empty:  # the test is over, and this thread is its last
            return
        if isinstance(word, Exception):
            raise word
        if isinstance(word, SessionEnding):
            self.ending = word
            return
        yield word

    def details(self) -> Details:
        return tui.details()

    def log(self, lines: int) -> LogTail:
        return LogTail(path="/state/a.jsonl", lines=self.logged)

    def snapshot(self) -> object:
        return tui.snapshot()

    def undo(self, token: int) -> str | None:
        self._note("undo", token)
        return "the agent is busy"

    def detach(self) -> SessionEnding:
        self._note("detach", None)
        return SessionEnding(kind="detached", why="detached")

    def measure(self, what: str, probing: str | None) -> None:
        self._note("measure", probing)

    def close(self) -> None:
        self.left.set()

    def _note(self, name: str, what: object) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.calls.append((name, what))


class Watcher:
    """Starts a source and waits for views."""

    def __init__(
        self, *clients: FakeClient, rejoined: Callable[[int], object] | None = None, **options: object
    ) -> None:
        self.views: SimpleQueue[View] = SimpleQueue()
        self.clients = list(clients)
        self.source = LiveSource(8091, self._open, rejoin=rejoined or self._rejoin, **options)  # type: ignore[arg-type]

    def start(self) -> Watcher:
        self.source.start(self.views.put)
        return self

    def live(self, listener: FakeClient) -> SimpleQueue[str]:
        """A first view has come; where answers to requests are put."""
        listener.inbox.put(tui.snapshot())
        self.until(lambda view: view.snapshot is not None)
        return SimpleQueue()

    def end(self, listener: FakeClient) -> None:
        self.source.close()
        listener.inbox.put(SessionEnding(kind="detached", why="detached"))

    def until(self, right: Callable[[View], bool]) -> View:
        while True:
            view = self.views.get(timeout=PATIENCE_S)
            if right(view):
                return view

    def _open(self, on_wait: Callable[[str], None]) -> object:
        on_wait("waiting for the interpreter")
        return self._rejoin(8091)

    def _rejoin(self, pid: int) -> object:
        return self.clients.pop(0) if self.clients else None


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_source, "REJOIN_S", 0.001)


def test_snapshots_details_and_narration_become_one_view() -> None:
    client = FakeClient()
    watcher = Watcher(client).start()
    assert (
        watcher.until(lambda view: view.why == "waiting for the interpreter").standing
        is ScreenStanding.OPENING
    )
    client.inbox.put(tui.snapshot())
    client.inbox.put(ActivityLine(text="regime: overhead (high)"))
    view = watcher.until(lambda view: view.details is not None and len(view.log) >= 2)
    assert (view.standing, view.regime, view.acting) == (ScreenStanding.LIVE, "overhead", True)
    assert view.log[-1].text == "regime: overhead (high)"
    watcher.source.close()


def test_a_job_that_ends_leaves_its_last_picture() -> None:
    client = FakeClient()
    client.inbox.put(tui.snapshot())
    client.inbox.put(SessionEnding(kind="job ended", why="process 8091 ended", decided=True))
    watcher = Watcher(client).start()
    view = watcher.until(lambda view: view.standing is ScreenStanding.ENDED)
    assert (view.why, view.regime, view.acting) == ("process 8091 ended", "overhead", False)
    assert watcher.source.ending == client.ending
    assert client.left.wait(PATIENCE_S)


def test_a_sidecar_that_is_gone_is_waited_for_and_joined_again() -> None:
    first, second = FakeClient(), FakeClient()
    first.inbox.put(AutobrrrError("the sidecar of process 8091 is gone", "attach again"))
    watcher = Watcher(first, second).start()
    lost = watcher.until(lambda view: view.standing is ScreenStanding.LOST)
    assert (lost.why, lost.hint, lost.acting) == (
        "the sidecar of process 8091 is gone",
        "attach again",
        False,
    )
    second.inbox.put(tui.snapshot())
    again = watcher.until(lambda view: view.standing is ScreenStanding.LIVE)
    assert again.why == ""
    second.inbox.put(SessionEnding(kind="detached", why="detached"))


def test_a_job_that_can_not_be_entered_says_why() -> None:
    def refused(on_wait: object) -> FakeClient:
        raise CannotAttach("it is a free-threaded build", "use another Python")

    watcher = Watcher()
    watcher.source._open = refused  # type: ignore[assignment]
    view = watcher.start().until(lambda view: view.standing is ScreenStanding.REFUSED)
    assert (view.why, view.hint) == ("it is a free-threaded build", "use another Python")
    assert isinstance(watcher.source.error, CannotAttach)
    watcher.source.close()


def measure(client: Client) -> str:
    client.ask(Measure("all", "on"))
    return "measuring"


def revert(client: Client) -> str:
    return f"still on: {client.ask(UndoRemedy(7))}"


def test_a_request_that_is_refused_says_why_and_the_next_is_done() -> None:
    listener, first, second = FakeClient(), FakeClient(), FakeClient()
    first.refusal = AutobrrrError("the job is being tuned", "cancel the tuning first")
    watcher = Watcher(listener, first, second).start()
    told = watcher.live(listener)
    for work in (revert, measure, measure):
        watcher.source.request(work, told.put)
    said = [told.get(timeout=PATIENCE_S) for _ in range(3)]
    assert said == [
        "the job is being tuned; cancel the tuning first",
        "measuring",
        "there is no session of this job any more",
    ]
    watcher.end(listener)


def test_to_end_something_does_not_wait_for_a_remedy_that_is_slow() -> None:
    listener, slow, hand = FakeClient(), FakeClient(), FakeClient()
    asked, go = threading.Event(), threading.Event()

    def hang(token: int) -> str | None:
        asked.set()
        go.wait(PATIENCE_S)
        return None

    slow.undo = hang  # type: ignore[method-assign]
    watcher = Watcher(listener, slow, hand).start()
    told = watcher.live(listener)
    watcher.source.request(revert, told.put)
    assert asked.wait(PATIENCE_S)
    watcher.source.request(lambda client: str(client.detach().why), told.put, at_once=True)
    assert told.get(timeout=PATIENCE_S) == "detached"
    assert hand.calls == [("detach", None)]
    go.set()
    assert told.get(timeout=PATIENCE_S) == "still on: None"
    watcher.end(listener)
