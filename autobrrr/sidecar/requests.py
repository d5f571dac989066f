"""What clients may ask of a session, and what they are sent unasked.

In: requests as frames, `{"do": NAME, "id": N, ...}`. Out: one answer each, `{"ok": true, ...}` or
`{"ok": false, "error": {message, hint, exit_code}}`, with the same id; to subscribers also
`{"event": "snapshot" | "activity" | "trial" | "ended", ...}`. A client that sends nonsense, or does
not read, loses its own connection and nothing else.
"""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable, Iterable
from typing import get_args

import msgspec

from autobrrr import __version__
from autobrrr.errors import AutobrrrError, UsageError
from autobrrr.injected.remedies.registry import up_to
from autobrrr.injected.wire.framing import MAX_FRAME_BYTES, BadFrame, Closed
from autobrrr.readable import cleaned
from autobrrr.records import RanksCompared
from autobrrr.records.events import Event, SessionOver, event_of
from autobrrr.records.record_base import as_record
from autobrrr.records.wire_answers import ActivityLine, RemedyChoice, RemedyOutcome, SessionEnding
from autobrrr.sidecar.process.session_options import Probing, Sweep
from autobrrr.sidecar.session.remedy_switch import Switched
from autobrrr.sidecar.session.screen_details import details
from autobrrr.sidecar.session.session import Session
from autobrrr.sidecar.session.session_log import SessionLog, tail
from autobrrr.sidecar.session.session_states import State
from autobrrr.sidecar.sockets.client_connection import ClientConnection, Fields, Reply, as_fields, failure
from autobrrr.sidecar.sockets.socket_frames import Wire
from autobrrr.sidecar.tuning.tuning_thread import TuningThread

MOST_CLIENTS = 64
EVERY_NS = 500_000_000
FASTEST_NS = 100_000_000
HELD_BYTES = MAX_FRAME_BYTES  # more than this unread: the client is dropped
CROWDED_BYTES = 1 << 16  # more than this unread: no further snapshot until it is read
CUT_FRAME_NS = 10_000_000_000  # a frame must be complete after this time
UNREAD_NS = 60_000_000_000  # nothing was taken for so long: the client is dropped
MOST_LOG_LINES = 500
OWNER_NS = 20_000_000_000  # for the command that started the session to join it, on a crowded machine


class Service:
    """All clients of one session. Belongs to the event loop's thread."""

    def __init__(
        self, session: Session, tuning: TuningThread, log: SessionLog, clock_ns: Callable[[], int]
    ) -> None:
        self._session, self._tuning, self._log, self._clock_ns = session, tuning, log, clock_ns
        self._unowned_until_ns: int | None = None
        self._stays = False  # until it is detached, whoever owns it
        self._orphaned = False  # who started it has left it to those who were there
        self.clients: list[ClientConnection] = []
        self.metrics: str | None = None  # where figures can be fetched
        self._do = {
            "ping": self._ping,
            "snapshot": self._snapshot,
            "subscribe": self._subscribe,
            "diagnose": self._diagnose,
            "apply": self._apply,
            "undo": self._undo,
            "together": self._together,
            "tune": self._tune,
            "cancel": self._cancel,
            "window": self._window,
            "sweep": self._sweep,
            "hold": self._hold,
            "go_on": self._go_on,
            "compare": self._compare,
            "compared": self._compared,
            "pause": self._pause,
            "resume": self._resume,
            "details": self._details,
            "explain": self._explain,
            "own": self._own,
            "leave": self._leave,
            "detach": self._detach,
            "log": self._read_log,
        }

    @property
    def watched(self) -> bool:
        """Whether anybody listens."""
        return any(client.every_ns is not None for client in self.clients)

    def expect_owner(self) -> None:
        """End the session unless a client comes soon that owns it: whoever started it may be gone already."""
        self._unowned_until_ns = self._clock_ns() + OWNER_NS

    def join(self, link: socket.socket) -> ClientConnection:
        """A client has come."""
        client = ClientConnection(wire=Wire(link, HELD_BYTES))
        self.clients.append(client)
        if len(self.clients) > MOST_CLIENTS:
            client.send(failure(AutobrrrError(f"{MOST_CLIENTS} clients are connected already")))
            client.leaving = True
        return client

    def readable(self, client: ClientConnection) -> None:
        """Bytes have come in."""
        try:
            messages = client.wire.read()
        except (Closed, OSError):
            client.gone = True
            return
        except BadFrame as error:
            self._throw_out(client, UsageError(f"bad frame: {error}", "use the same version on both sides"))
            return
        client.cut_since_ns = self._clock_ns() if client.wire.inside_frame else None
        for message in messages:
            if client.gone or client.leaving:
                return
            self._answer(client, message)

    def writable(self, client: ClientConnection) -> None:
        """The socket takes bytes again."""
        try:
            client.wire.flush()
        except OSError:
            client.gone = True

    def tick(self) -> list[ClientConnection]:
        """Push what is due; returns the connections that are free now."""
        now_ns = self._clock_ns()
        self._tuning.look(self.push)
        if self._unowned_until_ns is not None and now_ns > self._unowned_until_ns:
            self._unowned_until_ns = None
            self._session.detach(False, lambda ending: None)
        snapshot: Fields | None = None
        for client in self.clients:
            if client.cut_since_ns is not None and now_ns - client.cut_since_ns > CUT_FRAME_NS:
                self._throw_out(client, UsageError("bad frame: its end did not come"))
            self._mind_unread(client, now_ns)
            due = client.every_ns is not None and now_ns - client.pushed_ns >= client.every_ns
            if due and not client.leaving and client.wire.waiting_bytes < CROWDED_BYTES:
                snapshot = snapshot or event_of(self._session.snapshot())
                client.pushed_ns = now_ns
                client.send(snapshot)
        return self.free()

    def _mind_unread(self, client: ClientConnection, now_ns: int) -> None:
        """A client that takes nothing for long is dropped."""
        if not client.wire.waiting_bytes:
            client.stuck_since_ns = None
        elif client.stuck_since_ns is None:
            client.stuck_since_ns = now_ns
        elif now_ns - client.stuck_since_ns > UNREAD_NS:
            client.gone = True

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
            self._orphaned = self._orphaned or client.owner
            last = self._orphaned and client.every_ns is not None and not self._has_on
            if (client.owner or last) and not self._is_wanted(client):
                self._session.detach(False, lambda ending: None)
        return done

    def _is_wanted(self, leaving: ClientConnection) -> bool:
        """Whether the session goes on without this client: others own it too, listen, tune or have switched
        something on, or it was to stay."""
        tuned = self._tuning.asked is not None and self._tuning.asked_by is not leaving
        others = [client for client in self.clients if client is not leaving]
        used = any(one.owner or one.switches or one.every_ns is not None for one in others)
        return self._stays or tuned or used

    @property
    def _has_on(self) -> bool:
        """Whether somebody has switched something on that would go off with the session."""
        active = self._session.active
        return active is not None and any(not applied.planned for applied in active.on.values())

    def say(self, line: ActivityLine) -> None:
        """A line of narration for everybody who listens."""
        self.push(line)

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

    def _throw_out(self, client: ClientConnection, error: AutobrrrError) -> None:
        client.send(failure(error))
        client.leaving = True
        client.cut_since_ns = None

    def _answer(self, client: ClientConnection, message: Fields) -> None:
        number = message.get("id")
        reply = Reply(client, number if isinstance(number, int) else None)
        try:
            handler = self._do.get(str(message.get("do")))
            if handler is None:
                known = ", ".join(self._do)
                raise UsageError(f"unknown request {message.get('do')!r}", f"known are {known}")
            handler(reply, message)
        except AutobrrrError as error:
            reply.fail(error)
        except Exception as error:  # noqa: BLE001 - whatever one client asks for, the session goes on
            traceback.print_exc()
            reply.fail(AutobrrrError(f"this can't be answered: {type(error).__name__}: {error}"))

    def _ping(self, reply: Reply, message: Fields) -> None:
        session = self._session
        reply.done(
            version=__version__,
            pid=session.findings.pid,
            state=session.state.value,
            activity=session.activity,
            readonly=session.findings.options.readonly,
            outside=session.findings.options.outside,
            probing=session.findings.options.probing,
            metrics=self.metrics,
        )

    def _snapshot(self, reply: Reply, message: Fields) -> None:
        reply.done(snapshot=as_fields(self._session.snapshot()))

    def _subscribe(self, reply: Reply, message: Fields) -> None:
        """Snapshots from now on, every so many milliseconds; none where that is None."""
        every_ms = message.get("every_ms", EVERY_NS // 1_000_000)
        if every_ms is None:
            reply.done()
            reply.client.every_ns = None
            return
        if not isinstance(every_ms, int) or isinstance(every_ms, bool) or every_ms < 0:
            raise UsageError(f"every_ms is {every_ms!r}; a whole number of milliseconds is needed")
        reply.done()
        reply.client.every_ns = max(FASTEST_NS, every_ms * 1_000_000)

    def _diagnose(self, reply: Reply, message: Fields) -> None:
        probing = message.get("probing")
        if probing is not None and probing not in get_args(Probing):
            raise UsageError(f"probing is {probing!r}; {', '.join(get_args(Probing))} are known")
        self._session.measure_again(msgspec.convert(probing, Probing | None))
        reply.done(state=self._session.state.value)

    def _apply(self, reply: Reply, message: Fields) -> None:
        """Remedies one after the other; a refusal of one is said and does not stop the rest."""
        try:
            waiting = as_record(message.get("remedies"), list[RemedyChoice])
        except msgspec.ValidationError:
            raise UsageError("remedies must be a list of {remedy, options}") from None
        self._leave_the_tuner_alone()
        reply.client.switches = True
        outcome: list[Fields] = []

        def go_on() -> None:
            if self._session.state is State.TUNING:  # began meanwhile: the rest would spoil it
                why = "the job is being tuned"
                outcome.extend(as_fields(RemedyOutcome(remedy=each.remedy, why=why)) for each in waiting)
                waiting.clear()
            if not waiting:
                reply.done(outcome=outcome)
                return
            choice = waiting.pop(0)

            def switched(done: Switched) -> None:
                told = RemedyOutcome(
                    remedy=choice.remedy,
                    why=done.why,
                    code=None if done.code is None else done.code.value,
                    token=done.token,
                    class_=done.cls,
                )
                outcome.append(as_fields(told))
                go_on()

            allowed = None if choice.most_class is None else up_to(choice.most_class)
            options = {name: cleaned(value, str) for name, value in choice.options.items()}
            self._session.apply(choice.remedy, options, switched, allowed)

        go_on()

    def _undo(self, reply: Reply, message: Fields) -> None:
        """One remedy, by its token."""
        token = message.get("token")
        if not isinstance(token, int) or isinstance(token, bool):
            raise UsageError(f"token is {token!r}; the number of a remedy is needed")
        self._leave_the_tuner_alone()
        self._session.undo(token, lambda done: reply.done(why=done.why))

    def _leave_the_tuner_alone(self) -> None:
        """Raises AutobrrrError while a tuner compares: a remedy of somebody else's would spoil it."""
        if self._session.state is State.TUNING:
            raise AutobrrrError("the job is being tuned", "wait for it, or cancel the tuning first")

    def _together(self, reply: Reply, message: Fields) -> None:
        """From now on remedies go on and off on all ranks at one step."""
        self._leave_the_tuner_alone()
        log = message.get("log", "")
        if not isinstance(log, str):
            raise UsageError("log is a text")
        self._session.together(log, lambda done: reply.done(why=done.why, log=done.log))

    def _tune(self, reply: Reply, message: Fields) -> None:
        self._tuning.begin(reply.client, message, self.push)
        reply.client.switches = True
        self._stays = self._stays or self._tuning.asked_by is None
        reply.done()

    def _cancel(self, reply: Reply, message: Fields) -> None:
        self._tuning.cancel()
        reply.done()

    def _window(self, reply: Reply, message: Fields) -> None:
        """A few steps under the profiler; what they show comes with the snapshots."""
        refusal = self._session.open_window()
        if refusal is not None:
            raise AutobrrrError(f"no profiler window: {refusal}")
        reply.done()

    def _sweep(self, reply: Reply, message: Fields) -> None:
        """A step replayed at many sizes; what it shows comes with the snapshots."""
        along = message.get("along")
        if along not in get_args(Sweep):
            raise UsageError(f"along is {along!r}; {', '.join(get_args(Sweep))} are known")
        refusal = self._session.sweep(msgspec.convert(along, Sweep))
        if refusal is not None:
            raise AutobrrrError(f"no sweep: {refusal}")
        reply.done()

    def _hold(self, reply: Reply, message: Fields) -> None:
        """Nothing is measured until the ranks are compared, or for a minute."""
        self._session.hold()
        reply.done()

    def _go_on(self, reply: Reply, message: Fields) -> None:
        """What it was held for does not come about."""
        self._session.go_on()
        reply.done()

    def _compare(self, reply: Reply, message: Fields) -> None:
        """Timed steps of this rank, while the others are asked for theirs; answered once they are there."""
        for_ns = message.get("for_ns")
        if not isinstance(for_ns, int) or isinstance(for_ns, bool) or for_ns < 0:
            raise UsageError(f"for_ns is {for_ns!r}; nanoseconds are needed")
        refusal = self._session.compare(for_ns, lambda found: reply.done(steps=as_fields(found)))
        if refusal is not None:
            raise AutobrrrError(f"no comparison of ranks: {refusal}")

    def _compared(self, reply: Reply, message: Fields) -> None:
        """What came of the comparison: snapshots show it."""
        try:
            found = as_record(message.get("found"), RanksCompared)
        except msgspec.ValidationError as error:
            raise UsageError(f"found is no comparison of ranks: {error}") from None
        self._session.take_comparison(found)
        reply.done()

    def _pause(self, reply: Reply, message: Fields) -> None:
        self._tuning.hold(True)
        reply.done()

    def _resume(self, reply: Reply, message: Fields) -> None:
        self._tuning.hold(False)
        reply.done()

    def _details(self, reply: Reply, message: Fields) -> None:
        tuning = self._tuning
        found = details(self._session, tuning.tuned, tuning.progress, tuning.paused, tuning.asked)
        reply.done(details=as_fields(found))

    def _explain(self, reply: Reply, message: Fields) -> None:
        """What a signal, a regime or a figure means."""
        from autobrrr.diagnosis.glossary import explained

        reply.done(**as_fields(explained(str(message.get("name")))))

    def _own(self, reply: Reply, message: Fields) -> None:
        """The session ends with this client, unless it is wanted by then; or stays, whoever owned it."""
        owned = message.get("owned", True)
        if not isinstance(owned, bool):
            raise UsageError(f"owned is {owned!r}; true or false is needed")
        reply.client.owner, self._stays = owned, self._stays or not owned
        self._unowned_until_ns = None
        reply.done()

    def _leave(self, reply: Reply, message: Fields) -> None:
        """A command is through with the session: it ends where nobody else wants it, and who started it is
        this one, or was one that has left, and nothing is on; else there is no ending."""
        owned = reply.client.owner or (self._orphaned and not self._has_on)
        if not owned or self._is_wanted(reply.client):
            self._orphaned = self._orphaned or reply.client.owner
            reply.client.owner = False
            reply.done(ending=None)
        else:
            self._session.detach(False, lambda ending: reply.done(ending=as_fields(self._told(ending))))

    def _detach(self, reply: Reply, message: Fields) -> None:
        keep = message.get("keep", False)
        if not isinstance(keep, bool):
            raise UsageError(f"keep is {keep!r}; true or false is needed")

        def ended(ending: SessionEnding) -> None:
            reply.done(**as_fields(self._told(ending)))

        if keep:  # what is being tried is not proven: it goes off first
            self._tuning.stop(lambda: self._session.detach(True, ended))
        else:
            self._tuning.cancel()
            self._session.detach(False, ended)

    def _told(self, ending: SessionEnding) -> SessionEnding:
        return msgspec.structs.replace(ending, lost_lines=self._log.lost_lines)

    def _read_log(self, reply: Reply, message: Fields) -> None:
        lines = message.get("lines", 50)
        if not isinstance(lines, int) or not 0 <= lines <= MOST_LOG_LINES:
            raise UsageError(f"lines is {lines!r}; a number up to {MOST_LOG_LINES} is needed")
        reply.done(
            path=str(self._log.path), lost_lines=self._log.lost_lines, lines=tail(self._log.path, lines)
        )
