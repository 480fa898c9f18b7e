"""The caller: a subject, and its rights.

    read:runs write:runs run:agents run:files   read:sessions write:sessions   read:agents read:models
    read:roles write:roles   answer:questions   admin:runs admin:sessions admin:mcp admin:metrics

A run and a session belong to the subject that has made them; for those of others one needs `admin:runs` or
`admin:sessions`.
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
"""Every scope there is; `*` stands for all of them."""


class Caller(msgspec.Struct, frozen=True):
    """Who asks.

    Attributes:
        subject: whose runs and sessions are theirs.
        scopes: what they may do; `*` for everything.
        key: id of the key or token they came with, for the audit log.
        name: what others are told of them (who has answered); the subject, if empty.
    """

    subject: str
    scopes: frozenset[str]
    key: str | None = None
    name: str = ""

    def has(self, scope: str) -> bool:
        """Whether they may do this."""
        return scope in self.scopes or "*" in self.scopes

    def need(self, scope: str) -> None:
        """Raise `Denied` if they may not."""
        if not self.has(scope):
            raise Denied(f"this needs the scope '{scope}', which {self.subject} does not have")

    @property
    def called(self) -> str:
        """Their name for others."""
        return self.name or self.subject


LOCAL = Caller("local", frozenset({"*"}))
"""Who has the token that a server leaves in its user's own directory."""
