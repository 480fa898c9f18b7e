"""`/v1/roles`: what goes over the wire."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from .....protocol.control.bounds import Text


class RoleTold(msgspec.Struct, kw_only=True):
    """A role, as a list shows it.

    Attributes:
        source: `config` for one of the server's user, `library` for one that comes with Callboard.
        kind: what its prompt is: `system prompt`, `embedded prompt`, `few-shot prompt`; `settings` for none.
        arguments: how many it takes behind its name: `translate#it`.
        problem: why it can't be used.
    """

    name: str
    source: str
    kind: str = ""
    description: str = ""
    model: str | None = None
    arguments: int = 0
    problem: str = ""


class RoleDetail(RoleTold, kw_only=True):
    """A role with its file; `warnings` are about that."""

    text: str
    warnings: list[str] = []


class RolesList(msgspec.Struct, kw_only=True):
    """Every role."""

    roles: list[RoleTold]


class RoleBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file of a role: front matter, if any, and text."""

    text: Annotated[Text, Meta(description="Markdown with front matter, as docs/roles.md has it.")]
