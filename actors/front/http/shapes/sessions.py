"""Bodies and replies of `/v1/sessions`."""

from __future__ import annotations

import msgspec

from .....protocol.control.bounds import Json, Name, Path


class NewSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it may be left out.

    Attributes:
        alias: what people call it; no two sessions of an agent have the same.
        agent: answers the prompts; without it the model does.
        rag: a knowledge base that prompts are looked up in.
        model: `client:model`.
        role: not there yet.
    """

    alias: Name | None = None
    agent: Name | None = None
    rag: Name | None = None
    model: Path | None = None
    role: Name | None = None


class AttachBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is attached, by its name."""

    name: Name


class SessionTold(msgspec.Struct, kw_only=True):
    """A session, as a list shows it."""

    id: str
    alias: str | None = None
    agent: str | None = None
    role: str | None = None
    rag: str | None = None
    model: str | None = None
    title: str | None = None
    owner: str | None = None
    created_at: str | None = None
    last_modified: str | None = None


class SessionDetail(SessionTold, kw_only=True):
    """A session with its messages; `compressed_messages` are those that a summary stands for now."""

    messages: list[dict[str, Json]] = []
    compressed_messages: list[dict[str, Json]] = []


class SessionsPage(msgspec.Struct, kw_only=True):
    """Sessions, newest first."""

    sessions: list[SessionTold]


class CompressReply(msgspec.Struct, kw_only=True):
    """Whether there was enough to shorten."""

    id: str
    compressed: bool
