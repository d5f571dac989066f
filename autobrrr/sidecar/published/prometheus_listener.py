"""`attach --metrics`: figures where Prometheus fetches them, on this machine only unless told otherwise.

On this machine's own address, only who asks for this machine is answered.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from autobrrr.errors import NotInstalled, UsageError
from autobrrr.sidecar.published.published_figures import Published

if TYPE_CHECKING:
    from prometheus_client.core import Metric

HERE = "127.0.0.1"
PATIENCE_S = 5.0
MOST_AT_ONCE = 64
PREFIX = "autobrrr"
Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


def address_of(text: str) -> tuple[str, int]:
    """`9464` on this machine, or `HOST:9464`.

    Raises:
        UsageError: it is no port.
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) < 65536):
        raise UsageError(f"--metrics {text} is not a port", "write --metrics 9464, or HOST:9464")
    return host.strip("[]") or HERE, int(port)


def is_of_this_machine(host: str) -> bool:
    """Whether a request's `Host` is this machine by an address or name of its own.

    A page in a browser here may have any other name point here, and so read what is for this machine alone.
    """
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.]+))(?::[0-9]{1,5})?", host, re.ASCII)
    name = "" if found is None else found[1] or found[2]
    return name.lower() == "localhost" or _is_loopback(name)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _for_this_machine(app: Application) -> Application:
    def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if is_of_this_machine(environ.get("HTTP_HOST", "")):
            return app(environ, start)
        start("421 Misdirected Request", [("Content-Type", "text/plain")])
        return [b"these figures are for this machine: ask for them by 127.0.0.1 or localhost\n"]

    return answer


class PrometheusListener:
    """Listens from the start, so that a port that is taken is said before the job is entered.

    Args:
        where: As `address_of` reads it.

    Raises:
        UsageError: nobody can listen there.
        NotInstalled: the library that writes the format is missing.
    """

    def __init__(self, where: str) -> None:
        host, port = address_of(where)
        if importlib.util.find_spec("prometheus_client") is None:
            raise NotInstalled("prometheus-client", "attach --metrics", "metrics")
        from prometheus_client import CollectorRegistry, make_wsgi_app, start_wsgi_server

        self._latest: Published | None = None
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server, self._thread = start_wsgi_server(port, host, registry)
        except OSError as error:
            why = error.strerror or str(error)
            raise UsageError(f"--metrics {where}: {why}", "name another port: --metrics PORT") from None
        self._host, self._port = self._server.server_address[:2]
        # Of each read: who connects and says nothing does not stay, and is no fault.
        self._server.RequestHandlerClass.timeout = PATIENCE_S  # type: ignore[attr-defined]
        room, answer = threading.Semaphore(MOST_AT_ONCE), self._server.process_request_thread  # type: ignore[attr-defined]

        def answered(*asked: Any) -> None:
            try:
                answer(*asked)
            finally:
                room.release()

        # A connection more would take a file that the session needs.
        self._server.verify_request = lambda *asked: room.acquire(blocking=False)  # type: ignore[method-assign]
        self._server.process_request_thread = answered  # type: ignore[attr-defined]
        self._server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
        if _is_loopback(str(self._host)):
            self._server.set_app(_for_this_machine(make_wsgi_app(registry)))

    @property
    def url(self) -> str:
        """Where the figures are."""
        host = str(self._host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self._port}/metrics"

    def take(self, told: Published) -> None:
        """From here on these are shown."""
        self._latest = told

    def close(self) -> None:
        """Nobody can connect any more when this returns."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_S)

    def collect(self) -> Iterator[Metric]:
        """What `prometheus_client` asks for at each request."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        told = self._latest
        families: dict[str, Metric] = {}
        for figure in () if told is None else told.figures:
            counts = figure.unit == "total"
            labels = dict((*told.job, *figure.labels)) if told else {}
            name = f"{PREFIX}_{figure.name}" + (f"_{figure.unit}" if figure.unit and not counts else "")
            if name not in families:
                family = CounterMetricFamily if counts else GaugeMetricFamily
                families[name] = family(name, figure.help, labels=list(labels))
            families[name].add_metric(list(labels.values()), figure.value)  # type: ignore[attr-defined]
        yield from families.values()
