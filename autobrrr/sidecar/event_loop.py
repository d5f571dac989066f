"""The one event loop of a sidecar: agent, clients, the job's end, signals, and a steady tick.

Sleeps in asyncio's loop; looks ten times a second while somebody listens or a measurement is under way, five
times otherwise. Other threads hand work in with `LoopCalls`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
import traceback
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
GOODBYE_EVERY_S = 0.02
ALIVE_S = 0.5
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class LoopCalls:
    """Work for the loop's thread, handed in by others; wakes the loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    def __call__(self, work: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # closed: it has ended
            self.loop.call_soon_threadsafe(work)


class EventLoop:
    """Runs until the session has ended and everybody has been told. A fault in what it calls ends it.

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
        self._agent, self._alive, self._loop = agent, alive, calls.loop
        self._stopped, self._alive_s = stopped, 0.0
        self._publish = publish
        self._loop.set_exception_handler(self._failed)
        self._listener = endpoint.listen()
        self._loop.add_reader(self._listener, self._accept)
        if agent is not None:
            self._loop.add_reader(agent.wire.link, self._agent_ready, agent)

    def run(self) -> None:
        """Serve until the end."""
        self._loop.run_until_complete(self._serve())

    def close(self) -> None:
        for client in self._service.clients:
            client.wire.close()
        if self._agent is not None:
            self._agent.wire.close()
        self._loop.close()

    async def _serve(self) -> None:
        while self._session.state is not State.ENDED:
            self._tick(time.monotonic())
            await asyncio.sleep(self._period_s())
        self._loop.remove_reader(self._listener)
        self._endpoint.deafen()
        self._service.end()
        deadline_s = time.monotonic() + GOODBYE_S
        while self._service.clients and time.monotonic() < deadline_s:
            self._drop(self._service.free())
            self._watch_writers()
            await asyncio.sleep(GOODBYE_EVERY_S)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        loop.default_exception_handler(context)
        loop.stop()

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
        self._watch_writers()

    def _period_s(self) -> float:
        idle = self._session.state is State.JUDGED and not self._service.watched
        return IDLE_S if idle else BUSY_S

    def _watch_writers(self) -> None:
        """What a socket did not take at once goes out when it takes more."""
        for client in self._service.clients:
            if client.wire.waiting_bytes:
                self._loop.add_writer(client.wire.link, self._client_writable, client)
        if self._agent is not None and self._agent.wire.waiting_bytes and not self._agent.lost:
            self._loop.add_writer(self._agent.wire.link, self._agent_writable, self._agent)

    def _accept(self) -> None:
        link = self._endpoint.accept()
        if link is not None:
            self._loop.add_reader(link, self._client_ready, self._service.join(link))

    def _client_ready(self, client: ClientConnection) -> None:
        if not client.gone:
            self._service.readable(client)
        self._drop(self._service.free())

    def _client_writable(self, client: ClientConnection) -> None:
        self._service.writable(client)
        if not client.wire.waiting_bytes:
            self._loop.remove_writer(client.wire.link)
        self._drop(self._service.free())

    def _agent_writable(self, agent: AgentLink) -> None:
        agent.flush()
        if agent.lost or not agent.wire.waiting_bytes:
            self._loop.remove_writer(agent.wire.link)

    def _agent_ready(self, agent: AgentLink) -> None:
        """Whatever an agent says, it costs its own link at most."""
        try:
            for event in () if agent.lost else agent.read():
                self._session.on_event(event)
        except Exception as error:  # noqa: BLE001 - it lives in somebody else's process
            traceback.print_exc()
            agent.lose(f"nothing can be made of what the agent says: {type(error).__name__}: {error}")
        if agent.lost:
            self._loop.remove_reader(agent.wire.link)
            self._session.link_lost(agent.why)
            self._session.tick()

    def _drop(self, clients: list[ClientConnection]) -> None:
        for client in clients:
            self._loop.remove_reader(client.wire.link)
            self._loop.remove_writer(client.wire.link)
            client.wire.close()
