"""What the standard variables switch on."""

from __future__ import annotations

import pytest

from callboard.actors.front.telemetry.export import WantedExporters, wanted

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
HERE = "http://localhost:4318"


@pytest.mark.parametrize(
    ("environ", "traces", "metrics"),
    [
        ({}, (), ()),
        ({"OTEL_SERVICE_NAME": "mine"}, (), ()),
        ({ENDPOINT: HERE}, ("otlp",), ("otlp",)),
        ({ENDPOINT: " "}, (), ()),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": HERE}, ("otlp",), ()),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": HERE}, (), ("otlp",)),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, ("otlp",), ()),
        ({"OTEL_TRACES_EXPORTER": "console, otlp,console"}, ("console", "otlp"), ()),
        ({"OTEL_METRICS_EXPORTER": "console"}, (), ("console",)),
        ({ENDPOINT: HERE, "OTEL_METRICS_EXPORTER": "none"}, ("otlp",), ()),
        ({ENDPOINT: HERE, "OTEL_SDK_DISABLED": "TRUE"}, (), ()),
        ({ENDPOINT: HERE, "OTEL_SDK_DISABLED": "false"}, ("otlp",), ("otlp",)),
        ({ENDPOINT: HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, ("otlp",), ("otlp",)),
    ],
)
def test_what_is_asked_for(environ: dict[str, str], traces: tuple[str, ...], metrics: tuple[str, ...]) -> None:
    asked = wanted(environ)
    assert asked == WantedExporters(traces=traces, metrics=metrics)
    assert asked.anything == bool(traces or metrics)


def test_what_can_not_be_done_is_told_once_and_the_rest_is_done() -> None:
    asked = wanted(
        {ENDPOINT: HERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_TRACES_EXPORTER": "zipkin,console,otlp"}
    )
    assert (asked.traces, asked.metrics) == (("console",), ())
    assert [problem.partition(":")[0] for problem in asked.problems] == [
        "OTEL_TRACES_EXPORTER",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
    ]
    assert "'grpc'" in asked.problems[1]


def test_a_signals_own_protocol_goes_before_the_general_one() -> None:
    general, own = "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
    asked = wanted({ENDPOINT: HERE, general: "http/protobuf", own: "http/json"})
    assert (asked.traces, asked.metrics) == ((), ("otlp",))
    assert own in asked.problems[0]
