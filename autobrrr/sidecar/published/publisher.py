"""Hands a session's figures to those that were asked for, every two seconds.

It is called on the event loop: what is slow, a reader or a network, has a thread in its own library.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.published.prometheus_listener import PrometheusListener
from autobrrr.sidecar.published.published_figures import Published
from autobrrr.sidecar.published.telemetry_export import TelemetryExport, is_asked_for, is_installed

EVERY_NS = 2_000_000_000


class Publisher:
    """Of one session; does nothing where nobody asked for figures."""

    def __init__(self, listener: PrometheusListener | None, export: TelemetryExport | None) -> None:
        self.url = None if listener is None else listener.url  # where figures can be fetched
        self._outlets = [each for each in (listener, export) if each is not None]
        self._due_ns = 0

    def look(self, now_ns: int, made: Callable[[], Published]) -> None:
        """Leave new figures where it is time."""
        if self._outlets and now_ns >= self._due_ns:
            self._due_ns = now_ns + EVERY_NS
            self._leave(made())

    def close(self, made: Callable[[], Published] | None = None) -> None:
        """The session is over: nobody can fetch figures any more; the last ones go out, if that is quick."""
        if self._outlets and made is not None:
            self._leave(made())
        for outlet in self._outlets:
            outlet.close()

    def _leave(self, told: Published) -> None:
        for outlet in self._outlets:
            outlet.take(told)


def publisher(
    options: SessionOptions, say: Callable[[str], None], env: Mapping[str, str] = os.environ
) -> Publisher:
    """With all that was asked for, before the job is entered.

    Args:
        say: Gets a line where what is asked for is not installed.

    Raises:
        AutobrrrError: something can't be had; nothing is left open.
    """
    listener = None if options.metrics is None else PrometheusListener(options.metrics)
    export = None
    try:
        if is_asked_for(env) and is_installed():
            export = TelemetryExport()
        elif is_asked_for(env):
            say("OTEL_… asks for metrics, but opentelemetry-sdk and its OTLP exporter are not installed here")
    except BaseException:
        Publisher(listener, None).close()
        raise
    return Publisher(listener, export)
