"""Permissions of tools, in files and flags.

    permissions:
      fs_write: allow                       # allow, ask or deny every call
      execute_command:                      # or by the call's subject: the command, the path, the URL
        allow: ["git status*", "ls*"]
        ask: "*"
        deny: "rm *"
      "fs_*": ask                           # names may be patterns; a full name comes first
      "server:github": ask                  # every tool of an MCP server
      "host:*.example.com": deny            # every address there, for tools and for processes in a sandbox

Within one rule the longest matching pattern decides; among equally long ones `deny` precedes `ask`, and `ask`
precedes `allow`. Matching, and the combination of files and flags, are defined in `actors/work/tools/permissions.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

Verdict: TypeAlias = Literal["allow", "ask", "deny"]

Patterns: TypeAlias = Annotated[
    tuple[str, ...] | None, Meta(extra={"one_or_many": True}, extra_json_schema={"x-one-or-many": True})
]
"""Either `"git *"` or `["git *", "ls"]`; both are read as a tuple."""


class PermissionRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Patterns for the subjects of a tool's calls: `*` matches any text, `?` one character."""

    allow: Annotated[Patterns, Meta(description="Allowed calls.")] = None
    ask: Annotated[Patterns, Meta(description="Calls that need an approval.")] = None
    deny: Annotated[Patterns, Meta(description="Denied calls.")] = None


def denies(rule: Verdict | PermissionRule) -> bool:
    """Return whether a rule denies at least some calls."""
    return bool(rule.deny) if isinstance(rule, PermissionRule) else rule == "deny"


Permissions: TypeAlias = dict[str, Verdict | PermissionRule]
"""Tool name, or pattern of names, to its rule."""
