"""The log, on stderr: for finding out why, where the narration only says what.

`CALLBOARD_LOG` holds a level (`warning`, `info`, `debug`, `trace`), or several parted by commas, some of them
for one logger and those below it: `info,callboard.graph=trace`. Off, only warnings are shown. `debug` has the
keys and size of the state at every step, and requests to models without their keys; `trace` has the whole state, which
may hold secrets.

Everything below `cli` logs through the standard library. structlog renders; it is imported only when
a log is asked for, since it costs more time than the rest of a short run.

Loki's variables are understood where `CALLBOARD_LOG` is not set: `CALLBOARD_LOG_LEVEL` (or `LOKI_LOG_LEVEL`) is the
level, `..._LOG_FILTER` names the loggers that it is for, and with `..._LOG_PATH` (or `..._LOG_FILE`) the log goes into
a file, from `info` on unless a level is named; stderr then gets warnings alone.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

import msgspec

from ..actors.io.handed_out import hidden
from ..protocol.environment import said
from ..protocol.errors import ConfigError
from .render.text import colours, safe

TRACE = 5
"""Below debug: may show everything there is."""

_LEVELS = {
    "trace": TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment says of the log.

    Attributes:
        text: levels, as `CALLBOARD_LOG` words them; "" for none but warnings.
        variable: which has said so.
        file: where it goes; None for stderr.
    """

    text: str = ""
    variable: str = "CALLBOARD_LOG"
    file: Path | None = None


def wanted_by(environ: Mapping[str, str]) -> Wanted:
    """What the environment says of the log."""
    of_path, of_file = said("log_path", environ)[1], said("log_file", environ)[1]
    file = Path(of_path or of_file).expanduser() if of_path or of_file else None
    if text := environ.get("CALLBOARD_LOG", "").strip():
        return Wanted(text=text, file=file)
    variable, level = said("log_level", environ)
    names = said("log_filter", environ)[1]
    level = level.strip() or ("info" if file is not None else "")
    parts = [f"{name.strip()}={level}" for name in names.split(",") if name.strip()] or [level]
    return Wanted(text=",".join(parts) if level else "", variable=variable or "CALLBOARD_LOG_LEVEL", file=file)


def configure(stream: TextIO | None = None) -> None:
    """Sets up logging for this process as the environment wants it.

    Raises:
        ConfigError: it names an unknown level, or a file that can't be written.
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
    stream = os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # lives as long as we do
    handler = _StderrHandler(stream)
    handler.setFormatter(_structured(handler.stream))
    return handler


def parse(text: str, variable: str = "CALLBOARD_LOG") -> dict[str, int]:
    """Logger names and levels as `CALLBOARD_LOG` words them; `callboard` itself is always among them."""
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
    """Finds stderr anew for each line, since the live tree puts itself in between while it is drawn."""

    def __init__(self, stream: TextIO | None) -> None:
        self._fixed = stream
        super().__init__(stream or sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = self._fixed or sys.stderr
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        """The line, without secrets of the vault."""
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
