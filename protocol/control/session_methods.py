"""Parameters and results of `_session/*`: operations on sessions."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .bounds import Name
from .own import Done, Params


class SessionMeta(msgspec.Struct, frozen=True, kw_only=True):
    """A session, as a list shows it.

    Attributes:
        last_modified: RFC 3339.
        is_autoname: its alias is generated.
        legacy: an older program's, which was not opened here yet.
    """

    id: str
    alias: str | None
    agent: str | None
    last_modified: str
    is_autoname: bool = False
    title: str | None = None
    owner: str | None = None
    created_at: str | None = None
    model: str | None = None
    cwd: str | None = None
    cost: float = 0.0
    role: str | None = None
    legacy: bool = False


class ListSessions(Params, frozen=True):
    """`_session/list`: of one agent, or all."""

    agent: Name | None = None


class OfSession(Params, frozen=True):
    """`_session/get`, `_session/delete`, `_session/empty`, `_session/compress`: an id, or an alias of `agent`'s."""

    session: Name
    agent: Name | None = None


class RenameSession(OfSession, frozen=True, kw_only=True):
    """`_session/rename`."""

    alias: Name


class SetRole(OfSession, frozen=True, kw_only=True):
    """`_session/set_role`: the role in which the model answers from now on, where no agent does; null for none."""

    role: Name | None = None


class ExportSession(OfSession, frozen=True, kw_only=True):
    """`_session/export`."""

    form: Literal["markdown", "json"] = "markdown"


class SessionList(msgspec.Struct, kw_only=True):
    """Result of `_session/list`, newest first."""

    sessions: list[SessionMeta]


class OneSession(msgspec.Struct, kw_only=True):
    """Result of `_session/get`, `_session/rename` and `_session/set_role`; `messages` as in the session's file."""

    session: SessionMeta
    messages: list[dict[str, Any]] = []


class Compressed(msgspec.Struct, kw_only=True):
    """Result of `_session/compress`: False if there was too little to shorten."""

    compressed: bool


class Exported(msgspec.Struct, kw_only=True):
    """Result of `_session/export`."""

    text: str


METHODS: dict[str, tuple[Any, Any]] = {
    "_session/list": (ListSessions, SessionList),
    "_session/get": (OfSession, OneSession),
    "_session/rename": (RenameSession, OneSession),
    "_session/set_role": (SetRole, OneSession),
    "_session/delete": (OfSession, Done),
    "_session/empty": (OfSession, Done),
    "_session/compress": (OfSession, Compressed),
    "_session/export": (ExportSession, Exported),
}
