"""What a rule's patterns say of a line of shell: each simple command of it is judged (`shell_line`).

    deny, ask   if they mean one of its commands, whatever that stands behind: `sudo`, `X=1`, a pipe, `sh -c`
    allow       if every one of its commands is allowed, its assignments included, and none writes into a file

A command that another one runs (`xargs rm`) has to be allowed as well, unless the pattern that allows the other names
it (`sudo ls*` means `ls`). Where a part can't be read, nothing is allowed: what the rule would have allowed is asked
for. A rule that allows everything (`*`) and forbids nothing needs no reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec

from ....protocol.permissions import Verdict
from .path_rules import STRICTNESS
from .shell_line import Simple, commands_of

Rows = Sequence[tuple[Verdict, str]]
"""Patterns with their verdicts, the one that counts most first."""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule says of one command.

    Attributes:
        command: its text.
        verdict: None if the rule says nothing of it.
        pattern: that decided; "" if none did.
        why: what else did, in words.
    """

    command: str
    verdict: Verdict | None
    pattern: str = ""
    why: str = ""


def judged(rows: Rows, line: str) -> Verdict | None:
    """What becomes of a line; None if the patterns don't say."""
    return together(said(rows, line))


def together(found: Iterable[Said]) -> Verdict | None:
    """The verdict on all: the strictest, and none if one command has none and no other is denied or asked for."""
    verdicts = [each.verdict for each in found]
    strict = [verdict for verdict in verdicts if verdict in ("deny", "ask")]
    if strict:
        return max(strict, key=lambda verdict: STRICTNESS[verdict])
    return "allow" if verdicts and all(verdict == "allow" for verdict in verdicts) else None


def said(rows: Rows, line: str) -> list[Said]:
    """What the patterns say of each command of a line."""
    if all(row == ("allow", "*") for row in rows):
        return [Said(command=line, verdict="allow", pattern="*")] if rows else []
    whole = " ".join(line.split())
    commands = commands_of(line)
    if commands is None:
        return [_of_unread(rows, whole)]
    found = [each for command in commands for each in _of(rows, command)]
    strict = _strict(rows, (whole,))  # `*| sh*` means no single command
    if strict is not None and len(commands) != 1:
        found.append(Said(command=whole, verdict=strict[0], pattern=strict[1]))
    return found


def _of(rows: Rows, command: Simple) -> list[Said]:
    own = _of_one(rows, command)
    found = [own]
    for inner in command.inner:
        below = [each for part in inner.all() for each in [_of_one(rows, part)]]
        if own.verdict == "allow" and _names(own.pattern, inner):
            below = [each for each in below if each.verdict in ("deny", "ask")]
        elif own.verdict == "allow" and not below:
            below = [Said(command=command.text, verdict=None)]
        found += below
    return found


def _of_one(rows: Rows, command: Simple) -> Said:
    """What the patterns say of a command by itself."""
    text = command.whole or "> file"
    for verdict, pattern in rows:
        if verdict == "allow":
            if _like(command.whole, pattern):
                return _allowed(rows, command, pattern)
        elif any(_like(each, pattern) for each in command.texts):
            return Said(command=text, verdict=verdict, pattern=pattern)
    return Said(command=text, verdict=None)


def _allowed(rows: Rows, command: Simple, pattern: str) -> Said:
    """A command that a pattern allows, unless something about it is not known."""
    why = ""
    if pattern != "*" and command.writes:
        why = "it writes into a file"
    elif command.opaque and (pattern != "*" or _forbids(rows)):
        why = "what it runs can't be read"
    elif not command.known and (pattern != "*" or _forbids(rows)):
        why = "which program it runs, only the shell will know"
    return Said(command=command.whole, verdict="ask" if why else "allow", pattern=pattern, why=why)


def _of_unread(rows: Rows, whole: str) -> Said:
    """A line that can't be read: what forbids is looked for anywhere in it, and nothing is allowed."""
    strict = _strict(rows, [whole, *_ends(whole)])
    if strict is not None:
        return Said(command=whole, verdict=strict[0], pattern=strict[1], why="the line can't be read")
    allows = next((pattern for verdict, pattern in rows if verdict == "allow" and _like(whole, pattern)), None)
    verdict: Verdict | None = None if allows is None else "ask"
    return Said(command=whole, verdict=verdict, pattern=allows or "", why="the line can't be read")


def _strict(rows: Rows, texts: Iterable[str]) -> tuple[Verdict, str] | None:
    texts = tuple(texts)
    found = [row for row in rows if row[0] != "allow" and row[1] != "*" and any(_like(text, row[1]) for text in texts)]
    return max(found, key=lambda row: STRICTNESS[row[0]]) if found else None


def _ends(whole: str) -> list[str]:
    """Every end of a line that begins with a word."""
    words = whole.split()[:200]
    return [" ".join(words[start:]).lstrip("({;&|!`$\\'\"") for start in range(len(words))]


def _names(pattern: str, inner: Simple) -> bool:
    """Whether a pattern that allows a command names what that runs, before anything that it leaves open."""
    literal = pattern.partition("*")[0].partition("?")[0]
    return pattern == "*" or (bool(inner.words) and inner.words[0] in literal.split())


def _forbids(rows: Rows) -> bool:
    return any(verdict != "allow" for verdict, _ in rows)


def _like(text: str, pattern: str) -> bool:
    """Whether a text matches, `*` and `?` being all that is special; `git *` means `git` as well."""
    plain = pattern.replace("[", "[[]")
    return fnmatchcase(text, plain) or (plain.endswith(" *") and text == plain[:-2])
