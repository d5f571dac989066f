"""What a session tells other programs: figures for Prometheus and OpenTelemetry, every two seconds.

In: a snapshot and the last tuning. Out: figures under names that stay; what is not measured is left out,
never 0. It is called on the event loop: what is slow, a reader or a network, has a thread in its own
library.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

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
Labels = dict[str, str]
Unit = Literal["seconds", "ratio", "total", ""]


class Figure(NamedTuple):
    """One figure: `name` and `unit` make its name elsewhere, `labels` say of which job it is, and of what."""

    name: str
    unit: Unit
    labels: Labels
    value: float
    help: str


def published(found: Diagnosis, tuned: Tuning | None) -> list[Figure]:
    """What is told of a session now."""
    script = "" if found.job is None else readable(found.job.script, MOST_LABEL)
    rank = "" if found.job is None or found.job.rank is None else str(found.job.rank)
    job = {"pid": str(found.pid), "script": script, "rank": rank}
    return [
        Figure(name, unit, job | labels, value / 1e9 if unit == "seconds" else value, help_)
        for name, unit, labels, value, help_ in _figures(found, tuned)
        if value is not None
    ]


def _figures(found: Diagnosis, tuned: Tuning | None) -> Iterator[tuple[str, Unit, Labels, float | None, str]]:
    """Name, unit, labels, value and what it is; times in ns."""
    median_ns, batch = found.step_ns.median, found.batch_probe.batch
    rate = batch * 1e9 / median_ns if median_ns and batch else None
    yield "step", "seconds", {}, median_ns, "median step"
    yield "step_p99", "seconds", {}, found.step_ns.p99, "99th percentile of steps"
    yield "steps", "total", {}, found.steps, "steps since attach"
    yield "samples_per_second", "", {}, rate, "samples that a second trains"
    for part, share in msgspec.structs.asdict(found.shares).items():
        yield "share", "ratio", {"part": part}, share, "part of the step"
    for phase, ns in msgspec.structs.asdict(found.phases_ns).items():
        yield "phase", "seconds", {"phase": phase}, ns, "mean time in a phase of the step"
    for regime in get_args(Regime):
        yield "regime", "", {"regime": regime}, regime == found.regime, "1: the regime"
    for limit in get_args(Limit):
        yield "limit", "", {"limit": limit}, limit == found.limit, "1: who limits"
    sure = found.confidence == "high" or found.limit_confidence == "high"
    yield "confident", "", {}, sure, "1: limit or regime is sure"
    # Else what has gained is no longer on.
    if tuned is not None and tuned.interval is not None and set(tuned.kept) <= set(found.active):
        low, high = tuned.interval
        for bound, gain in (("estimate", tuned.speedup), ("low", low), ("high", high)):
            yield "gain", "ratio", {"bound": bound}, gain, "proven speed-up"
    delay = None if found.host is None else found.host.run_delay_share
    yield "remedies_on", "", {}, len(found.active), "remedies that are on"
    yield "own_cost", "ratio", {}, found.cost.share, "what autobrrr itself costs in each step"
    yield "own_pauses", "seconds", {}, found.cost.one_off_ns, "all pauses that measuring caused"
    yield "cpu_wait", "ratio", {}, delay, "time that the training thread waits for a CPU"


HERE = "127.0.0.1"
PATIENCE_S = 5.0
PREFIX = "autobrrr"


def address_of(text: str) -> tuple[str, int]:
    """`9464` on this machine, or `HOST:9464`.

    Raises:
        UsageError: it is no port.
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) < 65536):
        raise UsageError(f"--metrics {text} is not a port", "write --metrics 9464, or HOST:9464")
    return host.strip("[]") or HERE, int(port)


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
            raise NotInstalled("prometheus-client", "attach --metrics")
        from prometheus_client import CollectorRegistry, start_http_server

        self._latest: list[Figure] = []
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            why = error.strerror or str(error)
            raise UsageError(f"--metrics {where}: {why}", "name another port: --metrics PORT") from None
        # Of each read: who connects and says nothing does not stay.
        self._server.RequestHandlerClass.timeout = PATIENCE_S  # type: ignore[attr-defined]

    @property
    def url(self) -> str:
        """Where the figures are."""
        host, port = map(str, self._server.server_address[:2])
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def take(self, told: list[Figure]) -> None:
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

        families: dict[str, Metric] = {}
        for figure in self._latest:
            counts = figure.unit == "total"
            name = f"{PREFIX}_{figure.name}" + (f"_{figure.unit}" if figure.unit and not counts else "")
            if name not in families:
                family = CounterMetricFamily if counts else GaugeMetricFamily
                families[name] = family(name, figure.help, labels=list(figure.labels))
            families[name].add_metric(list(figure.labels.values()), figure.value)  # type: ignore[attr-defined]
        yield from families.values()


ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
CLOSE_MS = 3000


def is_asked_for(env: Mapping[str, str]) -> bool:
    """Whether the environment wants metrics to be sent."""
    if env.get("OTEL_SDK_DISABLED", "").lower() == "true" or env.get("OTEL_METRICS_EXPORTER") == "none":
        return False
    return any(env.get(name) for name in ENDPOINTS) or env.get("OTEL_METRICS_EXPORTER") == "otlp"


class TelemetryExport:
    """Sends what was taken last, every minute or as often as `OTEL_METRIC_EXPORT_INTERVAL` says.

    Args:
        exporter: Takes the figures; by OTLP over HTTP unless given.

    Raises:
        ImportError: the SDK, or its exporter over HTTP, is not there.
    """

    def __init__(self, exporter: MetricExporter | None = None) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

            exporter = OTLPMetricExporter()
        self._latest: list[Figure] = []
        self._known: set[str] = set()
        self._provider = MeterProvider([PeriodicExportingMetricReader(exporter)], shutdown_on_exit=False)
        self._meter = self._provider.get_meter("autobrrr")

    def take(self, told: list[Figure]) -> None:
        """From here on these are sent."""
        self._latest = told
        for figure in told:
            if figure.name not in self._known:
                self._known.add(figure.name)
                counts = figure.unit == "total"
                meter = self._meter
                create = meter.create_observable_counter if counts else meter.create_observable_gauge
                unit, name = "s" if figure.unit == "seconds" else "1", f"{PREFIX}.{figure.name}"
                create(name, [self._of(figure.name)], unit=unit, description=figure.help)

    def close(self) -> None:
        """Send the last figures, for so long as that may take."""
        with suppress(Exception):  # a library of others, at the end of a session
            self._provider.shutdown(CLOSE_MS)

    def _of(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observed(options: CallbackOptions) -> Iterable[Observation]:
            from opentelemetry.metrics import Observation

            mine = [each for each in self._latest if each.name == name]
            return [Observation(float(each.value), each.labels) for each in mine]

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
        if is_asked_for(env):
            try:
                self._outlets.append(TelemetryExport())
            except ImportError:
                missing = "opentelemetry-sdk and its OTLP exporter are not installed here"
                say(f"OTEL_… asks for metrics, but {missing}")

    def look(self, now_ns: int, made: Callable[[], list[Figure]]) -> None:
        """Leave new figures where it is time."""
        if self._outlets and now_ns >= self._due_ns:
            self._due_ns = now_ns + EVERY_NS
            self._leave(made())

    def close(self, made: Callable[[], list[Figure]] | None = None) -> None:
        """The session is over: nobody can fetch figures any more; the last ones go out, if that is quick."""
        if self._outlets and made is not None:
            self._leave(made())
        for outlet in self._outlets:
            outlet.close()

    def _leave(self, told: list[Figure]) -> None:
        for outlet in self._outlets:
            outlet.take(told)
