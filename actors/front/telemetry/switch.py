"""Reads OpenTelemetry's standard variables; see docs/telemetry.md. Imports nothing of OpenTelemetry.

By the specification traces go to an OTLP collector on this machine by default. A command line that looks for one on
every machine it runs on would be a nuisance, so here a variable has to name an exporter or an endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

KNOWN = ("otlp", "console", "none")
PROTOCOL = "http/protobuf"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Where traces and metrics go: names of exporters.

    Attributes:
        problems: what the variables say that can't be done.
    """

    traces: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def anything(self) -> bool:
        """Whether something is to be exported."""
        return bool(self.traces or self.metrics)


def wanted(environ: Mapping[str, str]) -> Wanted:
    """What the environment asks for."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Wanted()
    problems: list[str] = []
    traces, metrics = (_exporters(environ, signal, problems) for signal in ("TRACES", "METRICS"))
    return Wanted(traces=traces, metrics=metrics, problems=tuple(dict.fromkeys(problems)))


def _exporters(environ: Mapping[str, str], signal: str, problems: list[str]) -> tuple[str, ...]:
    variable = f"OTEL_{signal}_EXPORTER"
    named = [name.strip().lower() for name in environ.get(variable, "").split(",") if name.strip()]
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    if not named and any(environ.get(endpoint, "").strip() for endpoint in endpoints):
        named = ["otlp"]
    problems += [
        f"{variable}: there is no exporter '{name[:60]}' here, only otlp, console and none"
        for name in named
        if name not in KNOWN
    ]
    exporters = [name for name in dict.fromkeys(named) if name in KNOWN and name != "none"]
    if "otlp" in exporters:
        general, own = "OTEL_EXPORTER_OTLP_PROTOCOL", f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL"
        variable = own if environ.get(own, "").strip() else general
        protocol = environ.get(variable, "").strip() or PROTOCOL
        if protocol != PROTOCOL:
            problems.append(f"{variable}: OTLP is spoken by {PROTOCOL} here (port 4318), not by '{protocol[:60]}'")
            exporters.remove("otlp")
    return tuple(exporters)
