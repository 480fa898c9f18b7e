"""Command lookup for a line. Names of two words take precedence over names of one; `/name` is the same as `.name`.

`.prompt last` is a command, and `.prompt last of them` is a prompt: if two commands fit, the one that accepts arguments
gets them.
"""

from __future__ import annotations

import re

from ....protocol.errors import UsageError
from ....protocol.problems import did_you_mean
from .commands import load
from .table import ALIASES, COMMANDS, ChatCommand

load()

UNKNOWN = 'Unknown command. Type ".help" for additional help.'

BARE = ("exit", "quit", "clear", "help")
"""Words that are commands even without a dot if they are the whole line. No user wants to pay for an answer to them."""

_WORD = re.compile(r"[./][A-Za-z][A-Za-z0-9_-]*$")


def bare(text: str) -> tuple[ChatCommand, str] | None:
    """Return the command of a line that is one of `BARE`, else None."""
    word = text.strip().casefold()
    return matched(f".{word}") if word in BARE else None


def matched(text: str) -> tuple[ChatCommand, str] | None:
    """Return the command of a line and its arguments; None for a prompt.

    A line that begins with a path is a prompt (`./run.sh fails`, `/etc/hosts is odd`).

    Raises:
        UsageError: the line looks like a command, but there is none of this name.
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
    first_words = [each.partition(" ")[0] for each in known]
    near = did_you_mean(name, list(dict.fromkeys([*known, *first_words, *ALIASES])))
    # Several words without a similar command: more likely a prompt, such as `/etc is odd`, than a typing error.
    if rest and not near:
        return None
    raise UsageError(f"{UNKNOWN} ({name}: {near})" if near else UNKNOWN)
