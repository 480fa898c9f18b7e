"""Which command a line means. A name of two words goes before one of its first word; `/name` means `.name`.

`.prompt last` shows something, and `.prompt last of them` is a prompt: of two that fit, the one that takes words has
them.
"""

from __future__ import annotations

import re

from ....protocol.errors import UsageError
from ....protocol.problems import did_you_mean
from .commands import load
from .table import ALIASES, COMMANDS, Command

load()

UNKNOWN = 'Unknown command. Type ".help" for additional help.'

BARE = ("exit", "quit", "clear", "help")
"""Words that are commands also without a dot, if they are the whole line: nobody means to pay for an answer to them."""

_WORD = re.compile(r"[./][A-Za-z][A-Za-z0-9_-]*$")


def bare(text: str) -> tuple[Command, str] | None:
    """The command that a line of one of `BARE` means; None for any other line."""
    word = text.strip().casefold()
    return matched(f".{word}") if word in BARE else None


def matched(text: str) -> tuple[Command, str] | None:
    """The command that a line means, and what stands behind its name; None for a line that is a prompt.

    A path at the beginning of a line (`./run.sh fails`, `/etc/hosts is odd`) makes it a prompt.

    Raises:
        UsageError: it looks like a command, and is none.
    """
    known = COMMANDS
    first, _, rest = text.strip().partition(" ")
    first, newline, more = first.partition("\n")
    rest = (newline + more + " " + rest).strip() if newline else rest.strip()
    if not _WORD.match(first):
        return None
    name = ALIASES.get("." + first[1:], "." + first[1:])
    second, _, behind = rest.partition(" ")
    longer = f"{name} {second}"
    if second and longer in known and not (behind and name in known and known[name].usage and not known[longer].usage):
        return known[longer], behind.strip()
    if name in known:
        return known[name], rest
    longer_ones = [each.removeprefix(f"{name} ") for each in known if each.startswith(f"{name} ")]
    if longer_ones:
        wanted = longer_ones[0] if len(longer_ones) == 1 else f"<{'|'.join(longer_ones)}>"
        raise UsageError(f"Usage: {name} {wanted}")
    near = did_you_mean(name, list(known))
    if rest and not near:
        return None
    raise UsageError(f"{UNKNOWN} ({name}: {near})" if near else UNKNOWN)
