"""What clients may ask of a session, and what they are sent unasked.

In: requests as frames, `{"do": NAME, "id": N, ...}`. Out: one answer each, `{"ok": true, ...}` or
`{"ok": false, "error": {message, hint, exit_code}}`, with the same id; to subscribers also
`{"event": "snapshot" | "activity" | "trial" | "ended", ...}`. A client that sends nonsense, or does
not read, loses its own connection and nothing else.
"""

from __future__ import annotations

import inspect
import socket
import traceback
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Annotated, Final, Literal, get_type_hints

import msgspec
from msgspec import Meta

from autobrrr import __version__
from autobrrr.agent.remedies.registry import up_to
from autobrrr.agent.wire.framing import MAX_FRAME_BYTES, BadFrame, Closed
from autobrrr.errors import AutobrrrError, UsageError
from autobrrr.readable import cleaned
from autobrrr.records import Record
from autobrrr.records.events import Event, SessionOver, event_of
from autobrrr.records.record_base import as_record
from autobrrr.records.tuning_records import TuneRequest
from autobrrr.records.wire_answers import (
    LogTail,
    RemedyChoice,
    SessionEnding,
    SessionFacts,
)
from autobrrr.sidecar.process.session_options import State
from autobrrr.sidecar.session.remedy_switch import Switched
from autobrrr.sidecar.session.session import Session
from autobrrr.sidecar.session.session_log import SessionLog, tail
from autobrrr.sidecar.session.snapshot import details
from autobrrr.sidecar.sockets.socket_frames import ClientConnection, Fields, Reply, Wire, as_fields, failure
from autobrrr.sidecar.tuning.tuning_thread import TuningThread

EVERY_MS = 500
FASTEST_NS = 100_000_000
HELD_BYTES = MAX_FRAME_BYTES  # more than this unread: the client is dropped
CROWDED_BYTES = 1 << 16  # more than this unread: no further snapshot until it is read
MOST_LOG_LINES = 500
OWNER_NS = 20_000_000_000  # for the command that started the session to join it, on a crowded machine

Count = Annotated[int, Meta(ge=0)]
Later = Literal["later"]
LATER: Final = "later"  # the answer is sent once it is there


class Service:
    """All clients of one session. Belongs to the event loop's thread."""

    def __init__(
        self, session: Session, tuning: TuningThread, log: SessionLog, clock_ns: Callable[[], int]
    ) -> None:
        self._session, self._tuning, self._log, self._clock_ns = session, tuning, log, clock_ns
        session.say = tuning.push = self.push
        self._unowned_until_ns: int | None = None
        self._stays = True  # until it is detached, whoever uses it
        self.clients: list[ClientConnection] = []
        self.metrics: str | None = None  # where figures can be fetched
        # What the session or its tuner does as it is asked; the rest needs to know who asks.
        self._passed_on: dict[str, Callable[..., None]] = {
            "diagnose": session.measure_again,
            "cancel": tuning.cancel,
            "pause": partial(tuning.hold, paused=True),
            "resume": partial(tuning.hold, paused=False),
            "hold": session.course.hold,
            "go_on": session.course.go_on,
            "compared": session.take_comparison,
        }
        self._own = {name[3:]: getattr(self, name) for name in vars(Service) if name.startswith("do_")}

    @property
    def watched(self) -> bool:
        """Whether anybody listens."""
        return any(client.every_ns is not None for client in self.clients)

    def expect_owner(self) -> None:
        """End the session with the last client that uses it, or where none that owns it comes soon."""
        self._stays = False
        self._unowned_until_ns = self._clock_ns() + OWNER_NS

    def join(self, link: socket.socket) -> ClientConnection:
        """A client has come."""
        client = ClientConnection(wire=Wire(link, HELD_BYTES))
        self.clients.append(client)
        return client

    def readable(self, client: ClientConnection) -> None:
        """Bytes have come in."""
        try:
            messages = client.wire.read()
        except (Closed, OSError):
            client.gone = True
            return
        except BadFrame as error:
            client.send(failure(UsageError(f"bad frame: {error}", "use the same version on both sides")))
            client.leaving = True
            return
        for message in messages:
            if client.gone or client.leaving:
                return
            self._answer(client, message)

    def flush(self) -> None:
        """What sockets did not take at once goes out, as far as they take more."""
        for client in self.clients:
            try:
                client.wire.flush()
            except OSError:
                client.gone = True

    def tick(self) -> list[ClientConnection]:
        """Push what is due; returns the connections that are free now."""
        now_ns = self._clock_ns()
        self._tuning.look()
        if self._unowned_until_ns is not None and now_ns > self._unowned_until_ns:
            self._unowned_until_ns = None
            self._session.detach(False, lambda ending: None)
        snapshot: Fields | None = None
        for client in self.clients:
            due = client.every_ns is not None and now_ns - client.pushed_ns >= client.every_ns
            if due and not client.leaving and client.wire.waiting_bytes < CROWDED_BYTES:
                snapshot = snapshot or event_of(self._session.snapshot())
                client.pushed_ns = now_ns
                client.send(snapshot)
        return self.free()

    def free(self) -> list[ClientConnection]:
        """Connections that are done; they are no longer served."""
        done = [
            client
            for client in self.clients
            if client.gone or (client.leaving and not client.wire.waiting_bytes)
        ]
        for client in done:
            self.clients.remove(client)
            if self._tuning.asked_by is client:
                self._tuning.cancel()
        if done and not self._is_used():
            self._session.detach(False, lambda ending: None)
        return done

    def _is_used(self, leaving: ClientConnection | None = None) -> bool:
        """Whether the session goes on without this client: others own it or listen, or it was to stay."""
        others = (client for client in self.clients if client is not leaving)
        used = any(one.owner or one.every_ns is not None for one in others)
        return self._stays or self._unowned_until_ns is not None or used

    def push(self, told: Event, also: Iterable[ClientConnection] = ()) -> None:
        """An event for all subscribers."""
        event = event_of(told)
        for client in {*(client for client in self.clients if client.every_ns is not None), *also}:
            client.send(event)

    def end(self) -> None:
        """The session is over: a last snapshot for everybody, then goodbye."""
        last = event_of(SessionOver(snapshot=self._session.snapshot(), ending=self._session.ending))
        for client in self.clients:
            client.send(last)
            client.leaving = True

    def _answer(self, client: ClientConnection, message: Fields) -> None:
        number, do = message.get("id"), str(message.get("do"))
        reply = Reply(client, number if isinstance(number, int) else None, message)
        try:
            handler = self._passed_on.get(do) or self._own.get(do)
            if handler is None:
                known = ", ".join({**self._own, **self._passed_on})
                raise UsageError(f"unknown request {message.get('do')!r}", f"known are {known}")
            given = msgspec.structs.asdict(as_record(message, _fields_of(handler)))
            answer = handler(**given) if do in self._passed_on else handler(reply, **given)
            if answer is not LATER:
                reply.done(**(as_fields(answer) if isinstance(answer, Record) else answer or {}))
        except msgspec.ValidationError as error:
            reply.fail(UsageError(f"{do}: {error}"))
        except AutobrrrError as error:
            reply.fail(error)
        except Exception as error:  # noqa: BLE001 - whatever one client asks for, the session goes on
            traceback.print_exc()
            reply.fail(AutobrrrError(f"this can't be answered: {type(error).__name__}: {error}"))

    # The requests. Their parameters, but the reply, are the fields that they take, checked by type.

    def do_ping(self, reply: Reply) -> SessionFacts:
        """Which session this is."""
        session, options = self._session, self._session.findings.options
        return SessionFacts(
            version=__version__,
            pid=session.findings.pid,
            state=session.state.value,
            activity=session.activity,
            readonly=options.readonly,
            outside=options.outside,
            probing=options.probing,
            metrics=self.metrics,
        )

    def do_snapshot(self, reply: Reply) -> Fields:
        """The session at this moment."""
        return {"snapshot": as_fields(self._session.snapshot())}

    def do_subscribe(self, reply: Reply, *, every_ms: Count | None = EVERY_MS) -> None:
        """Snapshots from now on, every so many milliseconds; none where that is None."""
        reply.client.every_ns = None if every_ms is None else max(FASTEST_NS, every_ms * 1_000_000)

    def do_apply(self, reply: Reply, *, remedies: list[RemedyChoice]) -> Later:
        """Remedies one after the other; a refusal of one is said and does not stop the rest."""
        self._leave_the_tuner_alone()
        reply.client.owner = True
        outcome: list[Fields] = []

        def go_on() -> None:
            if self._session.state is State.TUNING:  # began meanwhile: the rest would spoil it
                why = "the job is being tuned"
                outcome.extend({"remedy": each.remedy, "why": why} for each in remedies)
                remedies.clear()
            if not remedies:
                reply.done(outcome=outcome)
                return
            choice = remedies.pop(0)

            def switched(done: Switched) -> None:
                outcome.append({**as_fields(done), "remedy": choice.remedy})
                go_on()

            allowed = None if choice.most_class is None else up_to(choice.most_class)
            options = {name: cleaned(value, str) for name, value in choice.options.items()}
            self._session.active.apply(choice.remedy, options, switched, allowed)

        go_on()
        return LATER

    def do_undo(self, reply: Reply, *, token: int) -> Later:
        """One remedy, by its token."""
        self._leave_the_tuner_alone()
        self._session.active.undo(token, lambda done: reply.done(why=done.why))
        return LATER

    def _leave_the_tuner_alone(self) -> None:
        """Raises AutobrrrError while a tuner compares: a remedy of somebody else's would spoil it."""
        if self._session.state is State.TUNING:
            raise AutobrrrError("the job is being tuned", "wait for it, or cancel the tuning first")

    def do_together(self, reply: Reply, *, log: str = "") -> Later:
        """From now on remedies go on and off on all ranks at one step."""
        self._leave_the_tuner_alone()

        def switched(done: Switched) -> None:
            if done.why is not None:
                self._session.course.go_on()
            reply.done(why=done.why, log=done.log)

        self._session.course.hold()
        self._session.active.together(log, switched)
        return LATER

    def do_tune(self, reply: Reply) -> None:
        """Start a tuning (`TuneRequest`); what comes of it are events."""
        self._tuning.begin(reply.client, as_record(reply.asked, TuneRequest))
        reply.client.owner = True
        self._stays = self._stays or self._tuning.asked_by is None

    def do_window(self, reply: Reply) -> None:
        """A few steps under the profiler; what they show comes with the snapshots."""
        _granted("profiler window", self._session.busy)
        self._session.course.open_window()

    def do_sweep(self, reply: Reply) -> None:
        """A step replayed at many batch sizes; what it shows comes with the snapshots."""
        _granted("sweep", self._session.course.refusal)
        self._session.course.sweep()

    def do_compare(self, reply: Reply, *, for_ns: Count) -> Later:
        """Timed steps of this rank, while the others are asked for theirs; answered once they are there."""
        refusal = self._session.compare(for_ns, lambda found: reply.done(steps=as_fields(found)))
        _granted("comparison of ranks", refusal)
        return LATER

    def do_details(self, reply: Reply) -> Fields:
        """What a screen shows beside the snapshot."""
        return {"details": as_fields(details(self._session, self._tuning))}

    def do_own(self, reply: Reply, *, owned: bool = True) -> None:
        """The session goes on while this client uses it; or stays, whoever uses it."""
        reply.client.owner, self._stays = owned, self._stays or not owned
        self._unowned_until_ns = None

    def do_leave(self, reply: Reply) -> Fields | Later:
        """A command is through: the session ends where nobody else uses it and it was not to stay."""
        reply.client.owner, reply.client.every_ns = False, None
        if self._is_used(reply.client):
            return {"ending": None}
        self._session.detach(False, lambda ending: reply.done(ending=self._told(ending)))
        return LATER

    def do_detach(self, reply: Reply, *, keep: bool = False) -> Later:
        """End the session; answered once it is over."""

        def end() -> None:
            self._session.detach(keep, lambda ending: reply.done(**self._told(ending)))

        if keep:  # what is being tried is not proven: it goes off first
            self._tuning.stop(end)
        else:
            self._tuning.cancel()
            end()
        return LATER

    def _told(self, ending: SessionEnding) -> Fields:
        return as_fields(msgspec.structs.replace(ending, lost_lines=self._log.lost_lines))

    def do_log(self, reply: Reply, *, lines: Annotated[int, Meta(ge=0, le=MOST_LOG_LINES)] = 50) -> LogTail:
        """The end of the session's log."""
        return LogTail(path=str(self._log.path), lines=tail(self._log.path, lines))


@cache
def _fields_of(handler: Callable[..., object]) -> type[msgspec.Struct]:
    """The fields of a request: its handler's parameters that are still open."""
    hints = get_type_hints(getattr(handler, "func", handler), include_extras=True)
    bound, none = ("reply", *getattr(handler, "keywords", ())), inspect.Parameter.empty
    taken = [each for each in inspect.signature(handler).parameters.values() if each.name not in bound]
    return msgspec.defstruct(
        "Request",
        [(p.name, hints[p.name]) if p.default is none else (p.name, hints[p.name], p.default) for p in taken],
        kw_only=True,
    )


def _granted(what: str, refusal: str | None) -> None:
    if refusal is not None:
        raise AutobrrrError(f"no {what}: {refusal}")
