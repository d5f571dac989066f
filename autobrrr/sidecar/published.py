"""What a session tells other programs: figures for Prometheus and OpenTelemetry, every two seconds.

In: a snapshot and the last tuning. Out: figures under names that stay; what is not measured is left out,
never 0. It is called on the event loop: what is slow, a reader or a network, has a thread in its own
library.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

import msgspec

from autobrrr.errors import NotInstalled, UsageError
from autobrrr.readable import readable
from autobrrr.records import Diagnosis, Limit, Regime, Tuning
from autobrrr.sidecar.process.session_options import SessionOptions

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics.export import MetricExporter
    from prometheus_client.core import Metric


MOST_LABEL = 200
Label = tuple[str, str]
Unit = Literal["seconds", "ratio", "total", ""]


class Figure(NamedTuple):
    """One figure: `name` and `unit` make its name elsewhere, `labels` tell it from its like."""

    name: str
    unit: Unit
    labels: tuple[Label, ...]
    value: float
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Everything at one moment."""

    figures: tuple[Figure, ...]
    job: tuple[Label, ...]  # of all figures: whose they are


def published(found: Diagnosis, tuned: Tuning | None) -> Published:
    """What is told of a session now."""
    script = "" if found.job is None else readable(found.job.script, MOST_LABEL)
    rank = "" if found.job is None or found.job.rank is None else str(found.job.rank)
    figures = [
        Figure(name, unit, labels, value / 1e9 if unit == "seconds" else value, help_)
        for name, unit, labels, value, help_ in _figures(found, tuned)
        if value is not None
    ]
    return Published(
        figures=tuple(figures), job=(("pid", str(found.pid)), ("script", script), ("rank", rank))
    )


def _figures(
    found: Diagnosis, tuned: Tuning | None
) -> Iterator[tuple[str, Unit, tuple[Label, ...], float | None, str]]:
    """Name, unit, labels, value and what it is; times in ns."""
    median_ns, batch = found.step_ns.median, found.batch_probe.batch
    rate = batch * 1e9 / median_ns if median_ns and batch else None
    yield "step", "seconds", (), median_ns, "median step"
    yield "step_p99", "seconds", (), found.step_ns.p99, "99th percentile of steps"
    yield "steps", "total", (), found.steps, "steps since attach"
    yield "samples_per_second", "", (), rate, "samples that a second trains"
    for part, share in msgspec.structs.asdict(found.shares).items():
        yield "share", "ratio", (("part", part),), share, "part of the step"
    for phase, ns in msgspec.structs.asdict(found.phases_ns).items():
        yield "phase", "seconds", (("phase", phase),), ns, "mean time in a phase of the step"
    for regime in get_args(Regime):
        yield "regime", "", (("regime", regime),), regime == found.regime, "1: the regime"
    for limit in get_args(Limit):
        yield "limit", "", (("limit", limit),), limit == found.limit, "1: who limits"
    sure = found.confidence == "high" or found.limit_confidence == "high"
    yield "confident", "", (), sure, "1: limit or regime is sure"
    # Else what has gained is no longer on.
    if tuned is not None and tuned.interval is not None and set(tuned.kept) <= set(found.active):
        low, high = tuned.interval
        for bound, gain in (("estimate", tuned.speedup), ("low", low), ("high", high)):
            yield "gain", "ratio", (("bound", bound),), gain, "proven speed-up"
    delay = None if found.host is None else found.host.run_delay_share
    yield "remedies_on", "", (), len(found.active), "remedies that are on"
    yield "own_cost", "ratio", (), found.cost.share, "what autobrrr itself costs in each step"
    yield "own_pauses", "seconds", (), found.cost.one_off_ns, "all pauses that measuring caused"
    yield "cpu_wait", "ratio", (), delay, "time that the training thread waits for a CPU"


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
    name = urlsplit(f"//{host}").hostname or ""
    return name == "localhost" or _is_loopback(name)


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


ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SDK, EXPORTER = "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"
CLOSE_MS = 3000


def is_asked_for(env: Mapping[str, str]) -> bool:
    """Whether the environment wants metrics to be sent."""
    if env.get("OTEL_SDK_DISABLED", "").lower() == "true" or env.get("OTEL_METRICS_EXPORTER") == "none":
        return False
    return any(env.get(name) for name in ENDPOINTS) or env.get("OTEL_METRICS_EXPORTER") == "otlp"


def is_installed() -> bool:
    """Whether the SDK and its exporter over HTTP are there."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in (SDK, EXPORTER))
    except ModuleNotFoundError:
        return False


class TelemetryExport:
    """Sends what was taken last, every minute or as often as `OTEL_METRIC_EXPORT_INTERVAL` says.

    Args:
        exporter: Takes the figures; by OTLP over HTTP unless given.
    """

    def __init__(self, exporter: MetricExporter | None = None) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

            exporter = OTLPMetricExporter()
        self._latest: Published | None = None
        self._known: set[str] = set()
        self._provider = MeterProvider([PeriodicExportingMetricReader(exporter)], shutdown_on_exit=False)
        self._meter = self._provider.get_meter("autobrrr")

    def take(self, told: Published) -> None:
        """From here on these are sent."""
        self._latest = told
        for figure in told.figures:
            if figure.name not in self._known:
                self._known.add(figure.name)
                counts = figure.unit == "total"
                create = (
                    self._meter.create_observable_counter if counts else self._meter.create_observable_gauge
                )
                unit = {"seconds": "s", "ratio": "1"}.get(figure.unit, "1")
                create(f"autobrrr.{figure.name}", [self._of(figure.name)], unit=unit, description=figure.help)

    def close(self) -> None:
        """Send the last figures, for so long as that may take."""
        with suppress(Exception):  # a library of others, at the end of a session
            self._provider.shutdown(CLOSE_MS)

    def _of(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observed(options: CallbackOptions) -> Iterable[Observation]:
            from opentelemetry.metrics import Observation

            told = self._latest
            if told is None:
                return []
            return [
                Observation(float(each.value), dict((*told.job, *each.labels)))
                for each in told.figures
                if each.name == name
            ]

        return observed


EVERY_NS = 2_000_000_000


class Publisher:
    """Of one session; does nothing where nobody asked for figures. Made before the job is entered.

    Args:
        say: Gets a line where what is asked for is not installed.

    Attributes:
        url: Where figures can be fetched.

    Raises:
        AutobrrrError: something can't be had.
    """

    def __init__(
        self, options: SessionOptions, say: Callable[[str], object], env: Mapping[str, str] = os.environ
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
            self._outlets.append(TelemetryExport())

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
