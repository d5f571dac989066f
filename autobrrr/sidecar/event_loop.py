"""The one event loop of a sidecar: agent, clients, the job's end, signals, and a steady tick.

Sleeps in one `select`; looks ten times a second while somebody listens or a measurement is under
way, five times otherwise. Other threads hand work in with `call`.
"""

from __future__ import annotations

import selectors
import signal
import socket
import time
import traceback
from collections import deque
from collections.abc import Callable

from autobrrr.sidecar.requests import Service
from autobrrr.sidecar.session.session import Session
from autobrrr.sidecar.session.session_states import State
from autobrrr.sidecar.sockets.agent_link import AgentLink
from autobrrr.sidecar.sockets.client_connection import ClientConnection
from autobrrr.sidecar.sockets.session_socket import SessionSocket

BUSY_S = 0.1
IDLE_S = 0.2
GOODBYE_S = 1.0  # for clients to read what is left
ALIVE_S = 0.5
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class LoopCalls:
    """Work for the loop's thread, handed in by others; wakes the loop."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self.inside, self._outside = socket.socketpair()
        self.inside.setblocking(False)
        self._outside.setblocking(False)

    def __call__(self, work: Callable[[], None]) -> None:
        self._waiting.append(work)
        self.wake()

    def wake(self) -> None:
        try:
            self._outside.send(b"!")
        except OSError:  # full: the loop is about to look anyway; closed: it has ended
            pass

    def run(self) -> None:
        """Do what has been handed in."""
        try:
            while self.inside.recv(4096):
                pass
        except OSError:
            pass
        while self._waiting:
            self._waiting.popleft()()

    def close(self) -> None:
        self.inside.close()
        self._outside.close()


class EventLoop:
    """Runs until the session has ended and everybody has been told.

    Args:
        alive: Whether the job is there, asked now and then: its children may hold the agent's link.
        stopped: Whether the session is to end.
        publish: Called at every tick: tells other programs what is new.
    """

    def __init__(
        self,
        *,
        endpoint: SessionSocket,
        session: Session,
        service: Service,
        agent: AgentLink | None,
        alive: Callable[[], bool],
        stopped: Callable[[], bool],
        calls: LoopCalls,
        publish: Callable[[], object] = lambda: None,
    ) -> None:
        self._endpoint, self._session, self._service = endpoint, session, service
        self._agent, self._alive, self._calls = agent, alive, calls
        self._stopped, self._alive_s = stopped, 0.0
        self._publish = publish
        self._selector = selectors.DefaultSelector()
        self._add(calls.inside, lambda mask: calls.run())
        self._listener = endpoint.listen()
        self._add(self._listener, lambda mask: self._accept())
        if agent is not None:
            self._add(agent.wire.link, self._agent_ready)

    def run(self) -> None:
        """Serve until the end."""
        next_s = time.monotonic()
        while self._session.state is not State.ENDED:
            self._wait(max(0.0, next_s - time.monotonic()))
            now_s = time.monotonic()
            if now_s >= next_s:
                self._tick(now_s)
                next_s = max(next_s + self._period_s(), now_s + self._period_s() / 2)
        self._say_goodbye()

    def close(self) -> None:
        for client in self._service.clients:
            client.wire.close()
        if self._agent is not None:
            self._agent.wire.close()
        self._selector.close()

    def _tick(self, now_s: float) -> None:
        if now_s - self._alive_s > ALIVE_S:
            self._alive_s = now_s
            if not self._alive():
                self._session.job_ended()
        if self._stopped() and self._session.state is not State.DETACHING:
            self._session.detach(False, lambda ending: None)
        if self._agent is not None and self._agent.lost:
            self._session.link_lost(self._agent.why)
        try:
            self._session.tick()
        except Exception as error:  # noqa: BLE001 - clients must hear how it ended, whatever the figures were
            traceback.print_exc()
            self._session.fail(error)
        self._publish()
        self._drop(self._service.tick())

    def _period_s(self) -> float:
        idle = self._session.state is State.JUDGED and not self._service.watched
        return IDLE_S if idle else BUSY_S

    def _wait(self, timeout_s: float) -> None:
        self._watch_writers()
        for key, mask in self._selector.select(timeout_s):
            key.data(mask)
        self._drop(self._service.free())

    def _watch_writers(self) -> None:
        """Ask for writability only where something waits to go out."""
        wires = [client.wire for client in self._service.clients]
        if self._agent is not None and not self._agent.lost:
            wires.append(self._agent.wire)
        for wire in wires:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if wire.waiting_bytes else 0)
            key = self._selector.get_key(wire.link)
            if key.events != wanted:
                self._selector.modify(wire.link, wanted, key.data)

    def _accept(self) -> None:
        link = self._endpoint.accept()
        if link is None:
            return
        client = self._service.join(link)
        self._add(link, lambda mask: self._client_ready(client, mask))

    def _client_ready(self, client: ClientConnection, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._service.writable(client)
        if mask & selectors.EVENT_READ and not client.gone:
            self._service.readable(client)

    def _agent_ready(self, mask: int) -> None:
        if self._agent is None:
            return
        if mask & selectors.EVENT_WRITE and not self._agent.lost:
            self._agent.flush()
        if mask & selectors.EVENT_READ and not self._agent.lost:
            self._hear(self._agent)
        if self._agent.lost:
            self._forget(self._agent.wire.link)
            self._session.link_lost(self._agent.why)
            self._session.tick()

    def _hear(self, agent: AgentLink) -> None:
        """Whatever an agent says, it costs its own link at most."""
        try:
            for event in agent.read():
                self._session.on_event(event)
        except Exception as error:  # noqa: BLE001 - it lives in somebody else's process
            traceback.print_exc()
            agent.lose(f"nothing can be made of what the agent says: {type(error).__name__}: {error}")

    def _drop(self, clients: list[ClientConnection]) -> None:
        for client in clients:
            self._forget(client.wire.link)
            client.wire.close()

    def _add(self, file: socket.socket, ready: Callable[[int], None]) -> None:
        self._selector.register(file, selectors.EVENT_READ, ready)

    def _forget(self, file: socket.socket) -> None:
        try:
            self._selector.unregister(file)
        except (KeyError, ValueError):
            pass

    def _say_goodbye(self) -> None:
        self._forget(self._listener)
        self._endpoint.deafen()
        self._service.end()
        deadline_s = time.monotonic() + GOODBYE_S
        while self._service.clients and time.monotonic() < deadline_s:
            self._drop(self._service.free())
            self._wait(min(0.1, max(0.0, deadline_s - time.monotonic())))
