"""Caller: a subject, and its scopes.

    read:runs write:runs run:agents run:files   read:sessions write:sessions   read:agents read:models
    read:roles write:roles   answer:questions   admin:runs admin:sessions admin:mcp admin:metrics

A run and a session belong to the subject that created them. Access to runs and sessions of other subjects needs
`admin:runs` or `admin:sessions`.
"""

from __future__ import annotations

import msgspec

from ..errors import Denied

SCOPES = (
    "read:runs",
    "write:runs",
    "run:agents",
    "run:files",
    "read:sessions",
    "write:sessions",
    "read:agents",
    "read:models",
    "read:roles",
    "write:roles",
    "answer:questions",
    "admin:runs",
    "admin:sessions",
    "admin:mcp",
    "admin:metrics",
)
"""All scopes; `*` means all of them."""


class Caller(msgspec.Struct, frozen=True):
    """Authenticated caller.

    Attributes:
        subject: owner of the runs and sessions that the caller creates.
        scopes: permitted operations; `*` for all.
        key: id of the key or token of the request, for the audit log.
        name: name shown to others (for example, in answers); the subject, if empty.
    """

    subject: str
    scopes: frozenset[str]
    key: str | None = None
    name: str = ""

    def has(self, scope: str) -> bool:
        """Return whether the caller has this scope."""
        return scope in self.scopes or "*" in self.scopes

    def need(self, scope: str) -> None:
        """Raise `Denied` if the caller does not have this scope."""
        if not self.has(scope):
            raise Denied(f"this needs the scope '{scope}', which {self.subject} does not have")

    @property
    def called(self) -> str:
        """Name shown to others."""
        return self.name or self.subject


# `settings/api` refuses keys with this subject: their owners would own the local user's runs.
LOCAL = Caller("local", frozenset({"*"}))
"""Caller with the token that a server stores in its user's own directory."""
