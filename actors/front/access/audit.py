"""Audit log: actions with subject, time, target and result.

It has one line of JSON per action, separate from the program's log: its purpose differs, and it is retained longer. A
thread writes the lines, within a bound (see `lines`); every text in them is limited in length and redacted.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeAlias, final

import msgspec

from ....protocol.events import Event, RunStarted, ToolFinished
from ...io.lines import FileSink, Sink, StreamSink, SyslogSink, ThreadedLines
from ...io.secret_redaction import Redactor
from ...io.server_log import REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....protocol.control.caller import Caller
    from ....protocol.settings.api import AuditSettings

Action: TypeAlias = Literal[
    "SessionCreate",
    "SessionRead",
    "SessionUpdate",
    "SessionDelete",
    "AgentActivate",
    "RoleUpdate",
    "RoleDelete",
    "ToolExecute",
    "RunControl",
    "FilesRestore",
    "QuestionAnswer",
    "KnowledgeRebuild",
    "McpReload",
    "ConfigReload",
    "AuthFailure",
    "AccessDenied",
    "RateLimitRejection",
]
Result: TypeAlias = Literal["success", "denied", "error"]
LONGEST = 300
"""Maximum characters of a text in a line."""


class AuditLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Line of the log. `result` is always set; `reason` explains a result other than `success`."""

    timestamp: str
    action: Action
    result: Result
    subject: str | None = None
    key_id: str | None = None
    peer: str | None = None
    request_id: str | None = None
    target: str | None = None
    run: str | None = None
    reason: str | None = None
    details: dict[str, Any] = {}


@final
class Audit:
    """Audit log.

    Args:
        stream: stream for `sink: stderr`; None writes nothing there.
    """

    def __init__(
        self, settings: AuditSettings, *, stream: TextIO | None = None, redactor: Redactor | None = None
    ) -> None:
        self._stream = stream
        self._redactor = redactor or Redactor()
        self._settings = settings
        self._lines = self._opened(settings)

    def configure(self, settings: AuditSettings) -> None:
        """Change the destination; queued lines still go to the old one."""
        if settings == self._settings:
            return
        before, self._lines = self._lines, self._opened(settings)
        self._settings = settings
        if before is not None:
            before.finish(0.0)

    def close(self) -> None:
        """Write queued lines; may take a second."""
        if self._lines is not None:
            self._lines.finish(1.0)

    def log(
        self,
        action: Action,
        result: Result = "success",
        *,
        caller: Caller | None = None,
        subject: str | None = None,
        peer: str | None = None,
        target: str | None = None,
        run: str | None = None,
        reason: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        """Write a line, with the id of the current request.

        Args:
            subject: subject, if there is no caller.
        """
        if self._lines is None:
            return
        about = REQUEST.get()
        line = AuditLine(
            timestamp=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            action=action,
            result=result,
            subject=subject if caller is None else caller.subject,
            key_id=None if caller is None else caller.key,
            peer=peer or about.get("peer"),
            request_id=about.get("request_id"),
            target=_short(target),
            run=run,
            reason=_short(reason),
            details=details or {},
        )
        self._lines.put(self._redactor.text(msgspec.json.encode(line).decode()))

    def listener(self, owner_of: Callable[[str], str | None]) -> Callable[[Event], None]:
        """Return a bus listener that logs runs and tool calls with their owners."""

        def heard(event: Event) -> None:
            data = event.data
            if isinstance(data, RunStarted):
                self.log("AgentActivate", subject=owner_of(event.run), run=event.run, target=data.target)
            elif isinstance(data, ToolFinished):
                self.log(
                    "ToolExecute",
                    "error" if data.error else "success",
                    subject=owner_of(event.run),
                    run=event.run,
                    target=data.tool,
                    reason="the tool failed" if data.error else None,
                )

        return heard

    def _opened(self, settings: AuditSettings) -> ThreadedLines | None:
        sink: Sink
        if settings.sink == "file":
            sink = FileSink(Path(settings.file), max_bytes=settings.max_bytes, keep=settings.keep)
        elif settings.sink == "syslog":
            sink = SyslogSink(settings.facility)
        elif settings.sink == "stderr" and self._stream is not None:
            sink = StreamSink(self._stream)
        else:
            return None
        return ThreadedLines(sink, name="audit")


def _short(text: str | None) -> str | None:
    return None if text is None else text[:LONGEST]
