"""Log on stderr, for diagnosis; the progress display only names events.

`CALLBOARD_LOG` holds a level (`warning`, `info`, `debug`, `trace`), or several separated by commas, some of them for
one logger and its descendants: `info,callboard.graph=trace`. Without it, only warnings are shown. `debug` logs the keys
and size of the state at every step, and requests to models without their keys; `trace` logs the whole state, which may
contain secrets.

All packages below `cli` log through the standard library. structlog renders; it is imported only when a log is
requested, because it takes longer than the rest of a short run.

If `CALLBOARD_LOG` is not set, Loki's variables apply. `CALLBOARD_LOG_LEVEL` (or `LOKI_LOG_LEVEL`) is the level, and
`..._LOG_FILTER` names its loggers. With `..._LOG_PATH` (or `..._LOG_FILE`) the log goes into a file, from `info` on
unless a level is named; stderr then gets only warnings. If none of them is set, `RUST_LOG` applies with its targets
that begin with `loki` (`loki::graph=debug`); targets of other programs are ignored.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

import msgspec

from ..actors.io.secret_redaction import hidden
from ..protocol.environment import variable_value
from ..protocol.errors import ConfigError
from .render.text import colours, safe

TRACE = 5
"""Level below debug: may log everything."""

_LEVELS = {
    "trace": TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Log settings of the environment.

    Attributes:
        text: levels, in the syntax of `CALLBOARD_LOG`; "" for warnings only.
        variable: variable that sets them.
        file: log file; None for stderr.
    """

    text: str = ""
    variable: str = "CALLBOARD_LOG"
    file: Path | None = None


def wanted_by(environ: Mapping[str, str]) -> LogSettings:
    """Return the log settings of the environment."""
    of_path, of_file = variable_value("log_path", environ)[1], variable_value("log_file", environ)[1]
    file = Path(of_path or of_file).expanduser() if of_path or of_file else None
    if text := environ.get("CALLBOARD_LOG", "").strip():
        return LogSettings(text=text, file=file)
    variable, level = variable_value("log_level", environ)
    names = variable_value("log_filter", environ)[1]
    if not level.strip() and (of_rust := _of_rust(environ.get("RUST_LOG", ""))):
        return LogSettings(text=of_rust, variable="RUST_LOG", file=file)
    level = level.strip() or ("info" if file is not None else "")
    parts = [f"{name.strip()}={level}" for name in names.split(",") if name.strip()] or [level]
    return LogSettings(text=",".join(parts) if level else "", variable=variable or "CALLBOARD_LOG_LEVEL", file=file)


def _of_rust(text: str) -> str:
    """Return the directives of `RUST_LOG` for Loki in the syntax of `CALLBOARD_LOG`; invalid ones are ignored."""
    found = []
    for directive in text.split(","):
        target, _, level = directive.strip().partition("=")
        level = level.partition("[")[0].strip().lower() or "trace"
        first, *parts = target.strip().split("::")
        if first == "loki" and level in _LEVELS:  # Loki's modules below `graph` are one logger here
            found.append(f"{parts[0]}={level}" if parts else level)
    return ",".join(found)


def configure(stream: TextIO | None = None) -> None:
    """Configure logging for this process from its environment.

    Raises:
        ConfigError: a variable names an unknown level, or a file that can't be written.
    """
    logging.addLevelName(TRACE, "TRACE")
    wanted = wanted_by(os.environ)
    levels = parse(wanted.text, wanted.variable)
    handler = _StderrHandler(stream)
    plain = not wanted.text or wanted.file is not None
    handler.setFormatter(_Plain("%(levelname)s %(name)s: %(message)s") if plain else _structured(handler.stream))
    root = logging.getLogger("callboard")
    root.handlers = [handler]
    if wanted.file is not None:
        handler.setLevel(logging.WARNING)
        root.handlers.append(_to_file(wanted.file))
    root.propagate = False
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def _to_file(path: Path) -> logging.Handler:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"the log can't be written to {path}: {error.strerror}") from error
    # open for the lifetime of the process
    stream = os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    handler = _StderrHandler(stream)
    handler.setFormatter(_structured(handler.stream))
    return handler


def parse(text: str, variable: str = "CALLBOARD_LOG") -> dict[str, int]:
    """Parse logger names and levels in the syntax of `CALLBOARD_LOG`; `callboard` itself is always included.

    Raises:
        ConfigError: a level is unknown.
    """
    levels = {"callboard": logging.WARNING}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, level = part.rpartition("=")
        number = _LEVELS.get(level.strip().lower())
        if number is None:
            known = ", ".join(level for level in _LEVELS if level != "warn")
            raise ConfigError(f"{variable}: there is no level '{level}'; expected one of {known}")
        levels[_logger_name(name.strip()) if equals else "callboard"] = number
    return levels


def _logger_name(name: str) -> str:
    return name if name.split(".")[0] == "callboard" else f"callboard.{name}"


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Handler that looks up stderr for each line, because the live tree replaces it while it is drawn."""

    def __init__(self, stream: TextIO | None) -> None:
        self._fixed = stream
        super().__init__(stream or sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = self._fixed or sys.stderr
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with secrets of the vault redacted."""
        return hidden(super().format(record))


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return safe(super().format(record))


def _structured(stream: TextIO) -> logging.Formatter:
    import structlog

    coloured = colours(stream)

    def harmless(_logger: object, _method: str, fields: structlog.typing.EventDict) -> structlog.typing.EventDict:
        return {key: safe(value) if isinstance(value, str) else value for key, value in fields.items()}

    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(),
            structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False),
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            harmless,
            structlog.dev.ConsoleRenderer(
                colors=coloured, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
            ),
        ],
    )
