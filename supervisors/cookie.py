"""The mark that our children carry in their environment, so that those who leave their session are found.

`CALLBOARD_COOKIE` holds tokens joined by colons, outermost first:

    <tokens of an outer Callboard>:<token of the root>:<token of the process>

All descendants of a child inherit it, in any session, until one clears its environment. Because
it nests, an outer Callboard finds the children of an inner one; because the last token is the process' own, the
strays of one process differ from its siblings'. The host never puts it into its own environment: it would
hunt itself.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping

VARIABLE = "CALLBOARD_COOKIE"


def new_token() -> str:
    """A token that no other process has."""
    return secrets.token_hex(8)


def child_environment(given: Mapping[str, str] | None, *tokens: str) -> dict[str, str]:
    """The environment of a child: `given`, or ours if None, with the cookie that nests `tokens` in our own."""
    environment = dict(os.environ if given is None else given)
    outer = os.environ.get(VARIABLE)
    environment[VARIABLE] = ":".join(filter(None, (outer, *tokens)))
    return environment
