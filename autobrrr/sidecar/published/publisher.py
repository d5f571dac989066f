"""Hands a session's figures to those that were asked for, on a thread of its own.

The event loop leaves the newest figures every two seconds; what is slow, a network say, misses some.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.published.prometheus_listener import PrometheusListener
from autobrrr.sidecar.published.published_figures import Published
from autobrrr.sidecar.published.telemetry_export import TelemetryExport, is_asked_for, is_installed

EVERY_NS = 2_000_000_000
CLOSE_S = 8.0


class Outlet(Protocol):
    """Takes figures until it is closed."""

    def take(self, told: Published) -> None: ...

    def close(self) -> None: ...


class Publisher:
    """Of one session; does nothing where nobody asked for figures.

    Args:
        listener: Shows the newest figures to who asks.
        outlets: Who takes them.
        say: Gets a line when one of them fails; it is left out from then on.
    """

    def __init__(
        self, listener: PrometheusListener | None, outlets: Sequence[Outlet], say: Callable[[str], None]
    ) -> None:
        self._listener, self._outlets, self._say = listener, list(outlets), say
        self._due_ns = 0
        self._latest: Published | None = None
        self._news, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        if self._outlets:
            self._thread.start()

    @property
    def url(self) -> str | None:
        """Where figures can be fetched."""
        return None if self._listener is None else self._listener.url

    def look(self, now_ns: int, made: Callable[[], Published]) -> None:
        """On the event loop: leave new figures where it is time."""
        if now_ns >= self._due_ns and (self._listener is not None or self._outlets):
            self._due_ns = now_ns + EVERY_NS
            self._leave(made())

    def close(self, made: Callable[[], Published] | None = None) -> None:
        """The session is over: nobody can fetch figures any more; the last ones go out, if that is quick."""
        if made is not None and self._outlets:
            self._leave(made())
        if self._listener is not None:
            self._listener.close()
        self._over.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def _leave(self, told: Published) -> None:
        self._latest = told
        if self._listener is not None:
            self._listener.take(told)
        self._news.set()

    def _run(self) -> None:
        over = False
        while not over:
            self._news.wait()
            self._news.clear()
            over = self._over.is_set()
            for outlet in list(self._outlets):
                self._tell(outlet, over)

    def _tell(self, outlet: Outlet, over: bool) -> None:
        try:
            if self._latest is not None:
                outlet.take(self._latest)
            if over:
                outlet.close()
        except Exception as error:  # noqa: BLE001 - libraries of others; the session goes on
            self._outlets.remove(outlet)
            self._say(f"{type(outlet).__name__} is left out from here on: {type(error).__name__}: {error}")


def publisher(
    options: SessionOptions, say: Callable[[str], None], env: Mapping[str, str] = os.environ
) -> Publisher:
    """With all that was asked for, before the job is entered.

    Raises:
        AutobrrrError: something can't be had; nothing is left open.
    """
    listener = None if options.metrics is None else PrometheusListener(options.metrics)
    found: list[Outlet] = []
    try:
        if is_asked_for(env) and is_installed():
            found.append(TelemetryExport(say))
        elif is_asked_for(env):
            say("OTEL_… asks for metrics, but opentelemetry-sdk and its OTLP exporter are not installed here")
    except BaseException:
        Publisher(listener, found, say).close()
        raise
    return Publisher(listener, found, say)
