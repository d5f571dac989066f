"""What other programs are told: names that stay, nothing unmeasured, foreign text made inert."""

from __future__ import annotations

import importlib.util
import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from autobrrr.errors import NotInstalled, UsageError
from autobrrr.records import BatchProbe, Diagnosis, StepStats
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.published import (
    EVERY_NS,
    PrometheusListener,
    Publisher,
    TelemetryExport,
    address_of,
    is_asked_for,
    published,
)
from support.judged.verdicts import OVERHEAD
from support.screens import tui
from support.sessions.session import sample

LINE = re.compile(r'^autobrrr_[a-z0-9_]+\{(?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*\} \S+$')
DASHBOARD = Path(__file__).resolve().parents[3] / "docs" / "grafana" / "autobrrr.json"
GAINED = msgspec.structs.replace(tui.tuned(), speedup=1.25, interval=[1.2, 1.3])
WAITING = msgspec.structs.replace(sample(0), run_delay_share=0.1)


def found(**changes: object) -> Diagnosis:
    return msgspec.structs.replace(
        OVERHEAD, **{"job": tui.job(), "steps": 60, "active": GAINED.kept, **changes}
    )


def test_a_gain_that_is_no_longer_on_is_not_told() -> None:
    assert any(each.name == "gain" for each in published(found(), GAINED))
    assert not any(each.name == "gain" for each in published(found(active=[]), GAINED))


@contextmanager
def listening(where: str = "0") -> Iterator[PrometheusListener]:
    with closing(PrometheusListener(where)) as listener:
        yield listener


def connected(listener: PrometheusListener) -> socket.socket:
    return socket.create_connection(address_of(listener.url[7:-8]), timeout=20)


def fetched(listener: PrometheusListener) -> list[str]:
    with urllib.request.urlopen(listener.url, timeout=20) as answer:
        return [line for line in answer.read().decode().splitlines() if not line.startswith("#")]


def value(lines: list[str], name: str) -> float:
    (line,) = [line for line in lines if line.startswith(name)]
    return float(line.rpartition(" ")[2])


def test_prometheus_reads_what_the_session_knows() -> None:
    with listening() as listener:
        assert listener.url.startswith("http://127.0.0.1:")
        assert fetched(listener) == []  # nothing is known yet
        listener.take(published(found(), GAINED))
        lines = fetched(listener)
    assert value(lines, "autobrrr_step_seconds") == pytest.approx((OVERHEAD.step_ns.median or 0) / 1e9)
    assert value(lines, "autobrrr_steps_total") == 60
    assert [line for line in lines if line.startswith("autobrrr_regime") and line.endswith(" 1.0")] == [
        line for line in lines if 'regime="overhead"' in line
    ]
    bounds = [line.rpartition(" ")[2] for line in lines if line.startswith("autobrrr_gain_ratio")]
    assert bounds == ["1.25", "1.2", "1.3"]
    assert all(map(LINE.match, lines))


def test_what_is_not_measured_is_left_out_and_never_nothing() -> None:
    nothing = StepStats(count=0, mean=None, median=None, p99=None)
    told = published(found(step_ns=nothing, host=None), None)
    names = {each.name for each in told}
    assert names.isdisjoint({"step", "step_p99", "samples_per_second", "gain", "cpu_wait"})


def test_who_connects_and_says_nothing_delays_no_reader() -> None:
    with listening() as listener, ExitStack() as silent:
        for _ in range(3):
            silent.enter_context(connected(listener))
        listener.take(published(found(), None))
        assert fetched(listener)


@pytest.mark.parametrize(
    ("text", "address"),
    [("9464", ("127.0.0.1", 9464)), ("0.0.0.0:1", ("0.0.0.0", 1)), ("[::1]:80", ("::1", 80))],
)
def test_it_listens_on_this_machine_unless_it_is_told(text: str, address: tuple[str, int]) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize("text", ["", "x", "70000", "-1", "host:", "1:٣", "9" * 5000])
def test_what_is_no_port_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="not a port"):
        address_of(text)


def test_a_port_that_is_taken_and_a_library_that_is_missing_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(UsageError, match="in use"):
        PrometheusListener(str(other.getsockname()[1]))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotInstalled, match="prometheus-client"):
        PrometheusListener("0")


def test_every_figure_of_the_dashboard_is_told() -> None:
    with listening() as listener:
        told = found(host=WAITING, batch_probe=BatchProbe(status="abstained", batch=16))
        listener.take(published(told, GAINED))
        names = {line.partition("{")[0] for line in fetched(listener)}
    wanted = set(re.findall(r"autobrrr_[a-z0-9_]+", DASHBOARD.read_text()))
    assert json.loads(DASHBOARD.read_text())["panels"]
    assert len(wanted) >= 10
    assert wanted - names == set()


def test_every_two_seconds_new_figures_are_left_and_the_last_ones_at_the_end() -> None:
    made: list[int] = []
    with closing(Publisher(SessionOptions(metrics="0"), print, {})) as given:
        for now_ns in (0, EVERY_NS - 1, EVERY_NS):
            given.look(now_ns, lambda: made.append(0) or published(found(), None))  # type: ignore[func-returns-value]
        assert fetched(given)
    assert len(made) == 2


@pytest.mark.parametrize(
    ("env", "asked"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_METRICS_EXPORTER": "none"}, False),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, True),
    ],
)
def test_the_environment_asks_for_telemetry_or_does_not(env: dict[str, str], asked: bool) -> None:
    assert is_asked_for(env) is asked


def test_telemetry_sends_the_same_figures() -> None:
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")

    class Kept(export.MetricExporter):  # type: ignore[misc, name-defined]
        def export(self, metrics_data: object, timeout_millis: float = 0, **more: object) -> object:
            sent.append(json.loads(metrics_data.to_json()))  # type: ignore[attr-defined]
            return export.MetricExportResult.SUCCESS

        def force_flush(self, timeout_millis: float = 0) -> bool:
            return True

        def shutdown(self, timeout_millis: float = 0, **more: object) -> None:
            pass

    sent: list[dict[str, list[dict[str, list[dict[str, list[dict[str, object]]]]]]]] = []
    exporter = TelemetryExport(Kept())
    exporter.take(published(found(), GAINED))
    exporter.close()
    metrics = sent[-1]["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    by_name = {str(each["name"]): each for each in metrics}
    assert {"autobrrr.step", "autobrrr.gain", "autobrrr.regime", "autobrrr.steps"} <= set(by_name)
    assert by_name["autobrrr.step"]["unit"] == "s"
