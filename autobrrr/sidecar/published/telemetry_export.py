"""OpenTelemetry: the same figures, sent where the environment's `OTEL_…` variables say.

Nothing is sent unless an endpoint or an exporter is named there, and the SDK is installed beside us.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from autobrrr.sidecar.published.published_figures import Published

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics.export import MetricExporter

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
