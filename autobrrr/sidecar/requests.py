"""How a session answers its clients (`records/session_requests`), and what they are sent unasked.

In: requests as frames. Out: one answer each with the same id, or `{"ok": false, "error": {message, hint,
exit_code}}`; to subscribers also events (`records/events`). A client that sends nonsense, or does not read,
loses its own connection and nothing else.
"""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from autobrrr.agent.remedies.registry import up_to
from autobrrr.agent.wire.framing import BadFrame, Closed
from autobrrr.errors import AutobrrrError, UsageError
from autobrrr.readable import cleaned
from autobrrr.records import Advice
from autobrrr.records import session_requests as asked
from autobrrr.records.events import Event, event_of
from autobrrr.records.record_base import as_record
from autobrrr.records.wire_answers import LogTail, RemedyOutcome, SessionFacts
from autobrrr.sidecar.process.session_options import State
from autobrrr.sidecar.session.session import Session
from autobrrr.sidecar.session.session_log import SessionLog, tail
from autobrrr.sidecar.session.snapshot import details
from autobrrr.sidecar.sockets.socket_frames import ClientConnection, Fields, Reply, Wire, failure
from autobrrr.sidecar.tuning.tuning_thread import TuningThread

FASTEST_NS = 100_000_000
CROWDED_BYTES = 1 << 16  # more than this unread: no further snapshot until it is read
OWNER_NS = 20_000_000_000  # for the command that started the session to join it, on a crowded machine
LATER: Final = object()  # the answer is sent once it is there


class Service:
    """All clients of one session. Belongs to the event loop's thread."""

    def __init__(
        self, session: Session, tuning: TuningThread, log: SessionLog, clock_ns: Callable[[], int]
    ) -> None:
        self._session, self._tuning, self._log, self._clock_ns = session, tuning, log, clock_ns
        session.say = tuning.push = self.push
        self._unowned_until_ns: int | None = None
        self._stays: bool | ClientConnection = True  # until it is detached, whoever uses it; who said so
        self.clients: list[ClientConnection] = []
        self.metrics: str | None = None  # where figures can be fetched

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
        client = ClientConnection(wire=Wire(link))
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
            self._session.detach()
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
            self._session.detach()
        return done

    def _is_used(self, leaving: ClientConnection | None = None) -> bool:
        """Whether the session goes on without this client: others own it or listen, or it was to stay."""
        others = (client for client in self.clients if client is not leaving)
        used = any(one.owner or one.every_ns is not None for one in others)
        return bool(self._stays) or self._unowned_until_ns is not None or used

    def push(self, told: Event, also: Iterable[ClientConnection] = ()) -> None:
        """An event for all subscribers."""
        event = event_of(told)
        for client in {*(client for client in self.clients if client.every_ns is not None), *also}:
            client.send(event)

    def end(self) -> None:
        """The session is over: a last snapshot for everybody, then how it ended, and goodbye."""
        last = [self._session.snapshot(), self._session.ending]
        for client in self.clients:
            for each in last:
                if each is not None:
                    client.send(event_of(each))
            client.leaving = True

    def _answer(self, client: ClientConnection, message: Fields) -> None:
        number = message.get("id")
        reply = Reply(client, number if isinstance(number, int) else None)
        try:
            answer = self._do(as_record(message, asked.REQUESTS), reply)
            if answer is not LATER:
                reply.done(answer)
        except msgspec.ValidationError as error:
            reply.fail(UsageError(f"bad request {message.get('do')!r}: {error}"))
        except AutobrrrError as error:
            reply.fail(error)
        except Exception as error:  # noqa: BLE001 - whatever one client asks for, the session goes on
            traceback.print_exc()
            reply.fail(AutobrrrError(f"this can't be answered: {type(error).__name__}: {error}"))

    def _do(self, request: asked.Request[Any], reply: Reply) -> object:
        """Do what is asked for; returns the answer."""
        session, course, client = self._session, self._session.course, reply.client
        if request.changes_job and session.state is State.TUNING:
            raise AutobrrrError("the job is being tuned", "wait for it, or cancel the tuning first")
        match request:
            case asked.Ping():
                options = session.findings.options
                return SessionFacts(
                    pid=session.findings.pid,
                    readonly=options.readonly,
                    outside=options.outside,
                    probing=options.probing,
                    metrics=self.metrics,
                )
            case asked.TakeSnapshot():
                return session.snapshot()
            case asked.ShowDetails():
                return details(session, self._tuning)
            case asked.ReadLog(lines=lines):
                return LogTail(path=str(self._log.path), lines=tail(self._log.path, lines))
            case asked.Subscribe(every_ms=every_ms):
                client.every_ns = None if every_ms is None else max(FASTEST_NS, every_ms * 1_000_000)
            case asked.OwnSession(owned=owned):
                client.owner = owned
                if not owned:
                    self._stays = self._stays or client
                elif self._stays is client:  # nobody else's word is taken back
                    self._stays = False
                self._unowned_until_ns = None
            case asked.EndSession(keep=keep, if_unused=if_unused):
                if if_unused:
                    client.owner, client.every_ns = False, None
                return None if if_unused and self._is_used(client) else self._detach(keep, reply)
            case asked.Measure(what="all", probing=probing):
                session.measure_again(probing)
            case asked.Measure(what="window"):
                _granted("profiler window", session.busy)
                course.open_window()
            case asked.Measure():
                _granted("sweep", session.refusal("sweep"))
                course.sweep()
            case asked.HoldRank(held=held):
                course.hold() if held else course.go_on()
            case asked.CompareSteps(for_ns=for_ns):
                _granted("comparison of ranks", session.compare(for_ns, reply.done))
                return LATER
            case asked.TellCompared(found=found):
                session.take_comparison(found)
            case asked.ApplyRemedies(remedies=remedies, most_class=most_class):
                client.owner = True
                return self._apply(list(remedies), None if most_class is None else up_to(most_class), reply)
            case asked.UndoRemedy(token=token):
                session.active.undo(token, lambda done: reply.done(done.why))
                return LATER
            case asked.SwitchTogether(log=log):
                return self._switch_together(log, reply)
            case asked.TuneRequest():
                self._tuning.begin(client, request)
                client.owner = True
                self._stays = self._stays or self._tuning.asked_by is None
            case asked.SteerTuning(what="cancel"):
                self._tuning.cancel()
            case asked.SteerTuning(what=what):
                self._tuning.hold(what == "pause")
        return None

    def _apply(self, remedies: list[Advice], allowed: Sequence[str] | None, reply: Reply) -> object:
        outcome: list[RemedyOutcome] = []

        def go_on() -> None:
            if self._session.state is State.TUNING:  # began meanwhile: the rest would spoil it
                why = "the job is being tuned"
                outcome.extend(RemedyOutcome(remedy=each.remedy, why=why) for each in remedies)
                remedies.clear()
            if not remedies:
                reply.done(outcome)
                return
            choice = remedies.pop(0)

            def switched(done: RemedyOutcome) -> None:
                outcome.append(done)
                go_on()

            options = {name: cleaned(value, str) for name, value in choice.options.items()}
            self._session.active.apply(choice.remedy, options, switched, allowed)

        go_on()
        return LATER

    def _switch_together(self, log: str, reply: Reply) -> object:
        pid, course = self._session.findings.pid, self._session.course

        def switched(done: RemedyOutcome) -> None:
            if done.why is None:
                reply.done(done.log)
                return
            course.go_on()
            why = f"remedies can't be applied to all ranks: {done.why}"
            reply.fail(AutobrrrError(why, f"autobrrr tune {pid} applies to one rank what changes no result"))

        course.hold()
        self._session.active.together(log, switched)
        return LATER

    def _detach(self, keep: bool, reply: Reply) -> object:
        def end() -> None:
            self._session.detach(keep, reply.done)

        if keep:  # what is being tried is not proven: it goes off first
            self._tuning.stop(end)
        else:
            self._tuning.cancel()
            end()
        return LATER


def _granted(what: str, refusal: str | None) -> None:
    if refusal is not None:
        raise AutobrrrError(f"no {what}: {refusal}")
