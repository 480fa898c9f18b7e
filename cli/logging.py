"""The log, on stderr: for finding out why, where the narration only says what.

`CALLBOARD_LOG` holds a level (`warning`, `info`, `debug`, `trace`), or several parted by commas, some of them
for one logger and those below it: `info,callboard.graph=trace`. Off, only warnings are shown. `debug` has the
keys and size of the state at every step, and requests to models without their keys; `trace` has the whole state, which
may hold secrets.

Everything below `cli` logs through the standard library. structlog renders; it is imported only when
`CALLBOARD_LOG` is set, since it costs more time than the rest of a short run.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TextIO

from ..actors.io.handed_out import hidden
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


def configure(stream: TextIO | None = None) -> None:
    """Sets up logging for this process from `CALLBOARD_LOG`.

    Raises:
        ConfigError: `CALLBOARD_LOG` names an unknown level.
    """
    logging.addLevelName(TRACE, "TRACE")
    wanted = os.environ.get("CALLBOARD_LOG", "").strip()
    levels = parse(wanted)
    handler = _StderrHandler(stream)
    handler.setFormatter(_structured(handler.stream) if wanted else _Plain("%(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger("callboard")
    root.handlers = [handler]
    root.propagate = False
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def parse(text: str) -> dict[str, int]:
    """Logger names and levels as `CALLBOARD_LOG` words them; `callboard` itself is always among them."""
    levels = {"callboard": logging.WARNING}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, level = part.rpartition("=")
        number = _LEVELS.get(level.strip().lower())
        if number is None:
            known = ", ".join(level for level in _LEVELS if level != "warn")
            raise ConfigError(f"CALLBOARD_LOG: there is no level '{level}'; expected one of {known}")
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
