"""The audit log: who did what, when, to what, and whether that was allowed.

One line of JSON each, apart from the log of the program: it is kept for other reasons, and longer. Lines are written by
a thread and bounded in number (see `lines`); every text in them is bounded in length and goes through the redactor.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeAlias, final

import msgspec

from ....protocol.events import Event, RunStarted, ToolFinished
from ...io.lines import FileSink, Lines, Sink, StreamSink, SyslogSink
from ...io.redact import Redactor
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
"""Characters of a text in a line."""


class AuditLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line. `result` is always there; `reason` says why where it is not `success`."""

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
    """The log.

    Args:
        stream: for `sink: stderr`; without one nothing is written there.
    """

    def __init__(
        self, settings: AuditSettings, *, stream: TextIO | None = None, redactor: Redactor | None = None
    ) -> None:
        self._stream = stream
        self._redactor = redactor or Redactor()
        self._settings = settings
        self._lines = self._opened(settings)

    def configure(self, settings: AuditSettings) -> None:
        """Write elsewhere from now on; lines that wait go where they were meant for."""
        if settings == self._settings:
            return
        before, self._lines = self._lines, self._opened(settings)
        self._settings = settings
        if before is not None:
            before.finish(0.0)

    def close(self) -> None:
        """Write what waits; may take a second."""
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
        """Write a line; the id of the request that is being served is put in.

        Args:
            subject: who it was, where there is no caller.
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
        """A listener for the bus: runs that begin and tools that they call, with whose they are."""

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

    def _opened(self, settings: AuditSettings) -> Lines | None:
        sink: Sink
        if settings.sink == "file":
            sink = FileSink(Path(settings.file), max_bytes=settings.max_bytes, keep=settings.keep)
        elif settings.sink == "syslog":
            sink = SyslogSink(settings.facility)
        elif settings.sink == "stderr" and self._stream is not None:
            sink = StreamSink(self._stream)
        else:
            return None
        return Lines(sink, name="audit")


def _short(text: str | None) -> str | None:
    return None if text is None else text[:LONGEST]
