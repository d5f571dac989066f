"""What the command line and the terminal UI know of a session: one class, everything typed.

`open_session` finds the session of a job or starts one; the `Client` asks, listens and ends it.
Blocking; one thread at a time, but each of several threads may have a client of its own.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import msgspec

from autobrrr import paths
from autobrrr.agent.wire.framing import BadFrame, Closed, receive, send
from autobrrr.errors import AutobrrrError, CannotAttach, TargetGone
from autobrrr.machine.file_readiness import is_readable
from autobrrr.readable import fields, readable_lines
from autobrrr.records import Diagnosis, Record, Trial, TuneProgress, Tuning
from autobrrr.records.events import Told, from_entry
from autobrrr.records.record_base import as_record
from autobrrr.records.session_requests import (
    EndSession,
    OwnSession,
    Ping,
    Request,
    Subscribe,
    TuneRequest,
    answer_type,
)
from autobrrr.records.wire_answers import ActivityLine, SessionEnding, TuneFailed
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.process.spawn import error_from, start
from autobrrr.sidecar.sockets.session_socket import (
    SessionTarget,
    connect,
    find_target,
    is_alive,
    is_under_way,
    passed_over,
)

OnText = Callable[[str], None]
Fields = dict[str, object]
A = TypeVar("A")
T = TypeVar("T")

FAREWELL_S = 1.0  # patience with a session that has left a question unanswered
SILENT_S = 30.0  # after so long a silence, the session is asked whether it is there
JOIN_S = 90.0  # somebody else may be attaching, and wait for a long step


def lost_log_lines(count: int) -> str:
    """The sentence about lines of a session's log that are lost."""
    lines = "1 line" if count == 1 else f"{count} lines"
    return f"{lines} of the session's log could not be written: make room in {paths.state_dir()}"


def left_behind(ending: SessionEnding) -> list[str]:
    """What is to be said when a command ends its session: what stays in the job, and what is lost."""
    stays = ", ".join((*ending.left, *ending.stays))
    lines = [f"could not be removed from the job: {stays}"] if stays else []
    return [*lines, lost_log_lines(ending.lost_lines)] if ending.lost_lines else lines


class Client:
    """A connection to one session.

    Attributes:
        started: This client's command started the session; nobody else had it before.
        ending: How the session ended, once it has.
    """

    def __init__(self, link: socket.socket, *, started: bool = False) -> None:
        self.started = started
        self.ending: SessionEnding | None = None
        link.settimeout(Request.patience_s)  # of a frame that has begun
        self._link = link
        self._number = 0
        self._events: deque[Fields] = deque()
        self._every_s: float | None = None  # subscribed
        self._silent = False  # it has left a question without an answer
        self.facts = self.ask(Ping())

    def snapshots(
        self, *, for_s: float | None = None, every_s: float = 0.5, on_activity: OnText = lambda text: None
    ) -> Iterator[Diagnosis]:
        """Snapshots as they come, until the session ends or the time is up.

        The last one is final where the session has ended.
        """
        for event in self.events(for_s=for_s, every_s=every_s):
            if isinstance(event, ActivityLine):
                on_activity(event.text)
            elif isinstance(event, Diagnosis):
                yield event

    def events(self, *, for_s: float | None = None, every_s: float = 0.5) -> Iterator[Told]:
        """Everything that a subscriber is sent, until the session ends or the time is up."""
        end_s = None if for_s is None else time.monotonic() + for_s
        if self._every_s != every_s and self.ending is None:
            try:
                self.ask(Subscribe(int(every_s * 1000)))
            except TargetGone:
                if self.ending is None:  # else its last words are among the events
                    raise
            self._every_s = every_s
        while self._events or self.ending is None:
            left_s = None if end_s is None else end_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return
            event = self._next_event(left_s)
            if isinstance(event, Told):
                yield event

    def unsubscribe(self) -> None:
        """Be sent nothing more unasked."""
        self._every_s = None
        try:
            if self.ending is None:
                self.ask(Subscribe(None))
        except TargetGone:  # it has just ended: there is nothing more to come
            pass

    def tune(
        self,
        asked: TuneRequest,
        *,
        on_progress: Callable[[TuneProgress], None] = lambda progress: None,
        on_trial: Callable[[Trial], None] = lambda trial: None,
    ) -> Tuning:
        """Tune the job; returns when the tuner is through. Leaving earlier cancels it.

        Raises:
            AutobrrrError: the session can't tune, or the tuner failed.
            TargetGone: the job or its session ended meanwhile.
        """
        self.ask(asked)
        while True:
            event = self._next_event(None)
            if isinstance(event, TuneProgress):
                on_progress(event)
            elif isinstance(event, Trial):
                on_trial(event)
            elif isinstance(event, Tuning):
                return event
            elif isinstance(event, TuneFailed):
                raise error_from(msgspec.to_builtins(event))
            elif isinstance(event, SessionEnding):
                raise TargetGone(f"the session ended while tuning: {self._why()}")

    def detach(self, keep: bool = False) -> SessionEnding:
        """End the session; returns when it is over, with what could not be taken off."""
        ending = self.ask(EndSession(keep))
        assert ending is not None
        return self._over(ending)

    def leave(self) -> SessionEnding | None:
        """A command is through: as `detach` where nobody else owns the session, listens or told it to stay;
        None where it goes on."""
        ending = self.ask(EndSession(if_unused=True))
        return None if ending is None else self._over(ending)

    def _over(self, ending: SessionEnding) -> SessionEnding:
        """Wait for the end of the stream; what came before it can still be read."""
        self._hear_last_words(5.0)
        self.close()
        return ending

    def close(self) -> None:
        """Leave; the session goes on."""
        with suppress(OSError):  # the other side is gone
            self._link.shutdown(socket.SHUT_RDWR)  # also where a forked child holds the link
        self._link.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def ask(self, request: Request[A]) -> A:
        """The session's answer.

        Raises:
            AutobrrrError: it refuses, or takes longer than its patience.
            TargetGone: it is over.
        """
        self._number += 1
        number, timeout_s = self._number, request.patience_s
        asked = {"id": number, **msgspec.to_builtins(request)}
        try:
            send(self._link, asked)
        except OSError as error:
            self._hear_last_words()
            raise self._gone() from error
        if self._silent:
            timeout_s = min(timeout_s, FAREWELL_S)
        heard, end_s = False, time.monotonic() + timeout_s
        while True:
            message = self._next_message(end_s - time.monotonic())
            if message is None:
                self._silent = not heard and timeout_s <= Request.patience_s  # else the job takes long
                why = f"the session did not answer {asked['do']!r} within {timeout_s:.0f} s"
                raise AutobrrrError(why, "autobrrr detach ends it")
            heard, self._silent = True, False
            if "ok" not in message:
                self._keep(message)
            elif message["ok"] is True and message.get("id") == number:
                return _typed(message.get("answer"), answer_type(request))
            elif message["ok"] is False and message.get("id") in (number, None):
                raise error_from(message.get("error"))

    def _next_event(self, timeout_s: float | None) -> Record | None:
        """The next thing that came unasked; None where nothing came in time, or nothing that is known."""
        if not self._events:
            message = self._next_message(SILENT_S if timeout_s is None else timeout_s)
            if message is not None:
                self._keep(message)
            elif timeout_s is None:
                try:
                    self.ask(Ping())
                except AutobrrrError:
                    if not self._events:  # else what came meanwhile is told first
                        raise
        if not self._events:
            return None
        event = self._events.popleft()
        return _read(lambda: from_entry(str(event["event"]), event.get("body")))

    def _next_message(self, timeout_s: float | None) -> Fields | None:
        """The next frame of any kind; None where none begins in time."""
        try:
            if not is_readable(self._link, timeout_s):
                return None
            # The door for what a session says, which may be another user's.
            return fields(receive(self._link), readable_lines)
        except BadFrame as error:
            raise AutobrrrError(f"the session answers in another way: {error}") from None
        except (Closed, OSError):
            raise self._gone() from None

    def _hear_last_words(self, for_s: float = 0.0) -> None:
        """What comes before the other side closes can still be read."""
        end_s = time.monotonic() + for_s
        with suppress(AutobrrrError):  # the end of the stream is what is waited for
            while (message := self._next_message(max(0.0, end_s - time.monotonic()))) is not None:
                self._keep(message)

    def _keep(self, message: Fields) -> None:
        if "event" not in message:
            if message.get("ok") is False and message.get("id") is None:
                raise error_from(message.get("error"))  # what was to come can't: nothing is to be waited for
            return
        if message["event"] == "ended":
            self.ending = _typed(message.get("body"), SessionEnding)
        self._events.append(message)

    def _gone(self) -> AutobrrrError:
        facts = getattr(self, "facts", None)
        if facts is None or self.ending is not None:
            return TargetGone(f"the session is over: {self._why()}")
        try:
            find_target(facts.pid)
        except TargetGone:
            return TargetGone(f"the session is over: process {facts.pid} has ended")
        return AutobrrrError(
            f"the sidecar of process {facts.pid} is gone; the job trains on, all comes off by itself",
            "attach again to go on",
        )

    def _why(self) -> str:
        return self.ending.why if self.ending is not None else "the sidecar closed the connection"


def join(pid: int) -> Client | None:
    """The session of a job, where it has one in the usual places.

    Raises:
        TargetGone: there is no such process.
    """
    return _reached(find_target(pid))


def join_under_way(pid: int, *, on_wait: OnText) -> Client | None:
    """The session of a job, also one that another command is just starting; None where there is none.

    Args:
        on_wait: Gets a live line while it is waited for.

    Raises:
        TargetGone: there is no such process, or it ended meanwhile.
        AutobrrrError: the session neither starts nor fails.
    """
    return _joined(find_target(pid), None, on_wait)


_ENTERING = threading.Semaphore(4)  # of many ranks so many are entered at once


def open_session(
    pid: int, options: SessionOptions, say: OnText = lambda text: None, *, owned: bool = False
) -> Client:
    """The session of a job; one is started where there is none.

    Args:
        options: For a session that is started; one that is there keeps its own.
        say: Gets live lines while attaching takes long, and what a session that is there does otherwise.
        owned: A session that is started here ends with this client. Also one whose client is never made does.

    Raises:
        TargetGone: there is no such process, or it ended meanwhile.
        CannotAttach: it can't be entered, or its session does more to it than was asked for.
    """
    target = find_target(pid)

    def begin() -> bool:
        for line in passed_over():
            say(line)
        return start(target, options, say)

    with _ENTERING:
        client = _joined(target, begin, say, owned=owned)
    if client is None:
        raise AutobrrrError(
            f"the session of process {pid} ended as soon as it began: another command detached it, "
            "or it failed",
            "the log in the state folder says which; attach again to go on",
        )
    try:
        if not client.started:
            tell_about_joined(client, options, say)
            client.ask(OwnSession(owned))
    except BaseException:
        client.close()
        raise
    return client


def _joined(
    target: SessionTarget, begin: Callable[[], bool] | None, on_wait: OnText, *, owned: bool = False
) -> Client | None:
    """The session of a job, or what `begin` starts (once); one that another command starts is waited for."""
    end_s, started, waited = time.monotonic() + JOIN_S, False, False
    while True:
        coming = is_under_way(target)  # before the socket is tried: it may answer in between
        client = _reached(target, started=started, owned=owned)
        if client is not None:
            return client
        if not coming:
            if started or begin is None:
                return None
            started = begin()
            if started:
                continue
        if time.monotonic() > end_s:
            raise AutobrrrError(
                f"another session of process {target.pid} neither starts nor ends",
                "end the command that attaches, then try again",
            )
        if not waited:
            on_wait(f"another command is attaching to process {target.pid}: waiting for it")
        waited = True
        time.sleep(0.1)


def _reached(target: SessionTarget, *, started: bool = False, owned: bool = False) -> Client | None:
    """The session of a job; None where it has none, or one that is just ending."""
    link = connect(target)
    if link is None:
        return None
    try:
        client = Client(link, started=started)
        if started:
            client.ask(OwnSession(owned))  # one that nobody owns outlives this command
        return client
    except TargetGone:
        if not is_alive(target):
            raise
        return None


def _typed(raw: object, kind: type[T]) -> T:
    return _read(lambda: as_record(raw, kind))


def _read(read: Callable[[], T]) -> T:
    try:
        return read()
    except msgspec.ValidationError as error:
        raise AutobrrrError(
            f"the session's answer can't be read: {error}", "detach with the version that attached"
        ) from None


def tell_about_joined(client: Client, options: SessionOptions, say: OnText) -> None:
    """A session that was there keeps its own options: say where they differ.

    Raises:
        CannotAttach: it does more to the job than was asked for.
    """
    facts = client.facts
    stricter = [
        flag
        for flag, asked, there in (
            ("--outside", options.outside, facts.outside),
            ("--readonly", options.readonly, facts.readonly or facts.outside),
            (
                "--no-probe",
                options.probing == "off",
                facts.probing == "off" or facts.readonly or facts.outside,
            ),
            ("--metrics", options.metrics is not None, facts.metrics is not None),
        )
        if asked and not there
    ]
    if stricter:
        raise CannotAttach(
            f"process {facts.pid} already has a session, which was started without {stricter[0]}",
            f"autobrrr detach {facts.pid}, then attach again",
        )
    say(f"joined the existing session of process {facts.pid}")
    if facts.outside and not options.outside:
        say(f"it only watches from outside; autobrrr detach {facts.pid} ends it")
    elif facts.readonly and not options.readonly:
        say(f"it is read-only; autobrrr detach {facts.pid} ends it")
