"""Server log: one JSON object per line, each with its request, subject, session and run.

    {"timestamp":"2026-11-22T10:00:00.123Z","level":"warning","target":"callboard.models","message":"...",
     "request_id":"3f2a...","subject":"alice","run":"run-7f3a01bc","fields":{}}

The context of a line is in a context variable, so that all code below a request logs it without passing it on. A thread
writes the lines, after redaction.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TextIO, final

import msgspec

from .lines import StreamSink, ThreadedLines
from .secret_redaction import Redactor

_NOTHING: Mapping[str, str] = MappingProxyType({})
REQUEST: ContextVar[Mapping[str, str]] = ContextVar("callboard_request", default=_NOTHING)
"""Current context: `request_id`, `peer`, `subject`, `session_id`, `run`."""

SHOWN = ("request_id", "subject", "session_id", "run")
LEVELS = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), 127)}
_PLAIN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


@contextlib.contextmanager
def about(**what: str | None) -> Iterator[None]:
    """Set the context of log lines in the block, and in tasks that it starts."""
    given = {name: value for name, value in what.items() if value is not None}
    token = REQUEST.set({**REQUEST.get(), **given})
    try:
        yield
    finally:
        REQUEST.reset(token)


def install(
    stream: TextIO, *, format: str = "json", level: str = "info", redactor: Redactor | None = None
) -> ServerLog:
    """Send the program's log to `stream` in this format; the caller closes the stream."""
    handler = ServerLog(stream, format, redactor or Redactor())
    root = logging.getLogger("callboard")
    root.handlers = [handler]
    root.propagate = False
    set_level(level)
    return handler


def set_level(level: str) -> None:
    """Set the minimum level of records that are logged."""
    logging.getLogger("callboard").setLevel(LEVELS[level])


@final
class ServerLog(logging.Handler):
    """Log handler that formats, redacts and queues records."""

    def __init__(self, stream: TextIO, format: str, redactor: Redactor) -> None:
        super().__init__()
        self._lines = ThreadedLines(StreamSink(stream), name="log")
        self._json = format == "json"
        self._redactor = redactor

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the record's line for the thread."""
        try:
            line = as_json(record) if self._json else as_text(record)
            self._lines.put(self._redactor.text(line))
        except Exception:  # noqa: BLE001 - as in logging: a bad record must not break its caller
            self.handleError(record)

    def close(self) -> None:
        """Write queued lines, within a second."""
        self._lines.finish(1.0)
        super().close()


def as_json(record: logging.LogRecord) -> str:
    """Format a record as one line of JSON."""
    now = REQUEST.get()
    fields: dict[str, Any] = {name: value for name, value in vars(record).items() if name not in _PLAIN}
    line: dict[str, Any] = {
        "timestamp": _stamp(record.created),
        "level": record.levelname.lower(),
        "target": record.name,
        "message": record.getMessage(),
        **{name: fields.pop(name, None) or now.get(name) for name in SHOWN if name in fields or name in now},
        "fields": fields,
    }
    if record.exc_info is not None and record.exc_info[0] is not None:
        line["exception"] = "".join(traceback.format_exception(*record.exc_info))
    return msgspec.json.encode(line, enc_hook=repr).decode()


def as_text(record: logging.LogRecord) -> str:
    """Format a record as one line of text."""
    now = REQUEST.get()
    about = " ".join(f"{name}={now[name]}" for name in SHOWN if name in now)
    message = record.getMessage().translate(_CONTROLS)  # a line break could forge a log line
    text = f"{_stamp(record.created)} {record.levelname.lower():7} {record.name}: {message}"
    if about:
        text += f"  [{about}]"
    if record.exc_info is not None and record.exc_info[0] is not None:
        text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
    return text


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
