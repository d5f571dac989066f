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
    """Of one session; does nothing where nobody asked for figures. Made before the job is entered.

    Args:
        say: Gets a line where what is asked for is not installed.

    Attributes:
        url: Where figures can be fetched.

    Raises:
        AutobrrrError: something can't be had; nothing is left open.
    """

    def __init__(
        self, options: SessionOptions, say: Callable[[str], None], env: Mapping[str, str] = os.environ
    ) -> None:
        self.url: str | None = None
        self._outlets: list[PrometheusListener | TelemetryExport] = []
        self._due_ns = 0
        if options.metrics is not None:
            listener = PrometheusListener(options.metrics)
            self.url, self._outlets = listener.url, [listener]
        if is_asked_for(env) and not is_installed():
            say("OTEL_… asks for metrics, but opentelemetry-sdk and its OTLP exporter are not installed here")
        elif is_asked_for(env):
            try:
                self._outlets.append(TelemetryExport())
            except BaseException:
                self.close()
                raise

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
