"""Verdict of a rule's patterns on a shell command line.

    deny, ask   if a pattern matches one of the line's commands, whatever precedes it: `sudo`, `X=1`, a pipe,
                `sh -c`; a command that only might match (`git $X`) is asked about
    allow       if the line is understood (`shell_parser`), and patterns allow each of its commands with all effects
    ask         if the line is not understood, and the rule has any pattern

A pattern allows a command with all its effects only if it names them. A redirection that writes needs a pattern with
`>` (`echo * > build/*`). An option of a listed program that writes or runs something needs a pattern that names it
(`shell_programs`). A wrapper such as `timeout` needs no pattern of its own, since it has no other effect than the
command that it runs; `sudo` and `find` do. `allow: "*"` allows every effect, but no line that is not understood if the
same rule denies anything. Without a `deny` or an `ask` it allows every line, unread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

import msgspec

from ....protocol.permissions import Verdict
from .shell_commands import SimpleCommand, parse
from .shell_parser import FILE, is_known, mark, written
from .shell_programs import beyond, names

Rows = Sequence[tuple[Verdict, str]]
"""Patterns with their verdicts, in order of precedence."""

_ENDS = 200
"""Maximum positions in the arguments of an unknown program that are compared with patterns."""


class RuleVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict of a rule on one command.

    Attributes:
        command: its text.
        verdict: None if no pattern of the rule applies.
        pattern: the pattern that decided; "" if none did.
        why: the reason in words, if no pattern decided.
    """

    command: str
    verdict: Verdict | None
    pattern: str = ""
    why: str = ""


def judged(rows: Rows, line: str) -> Verdict | None:
    """Return the verdict on a line; None if no pattern applies."""
    return together(verdicts_of(rows, line))


def together(found: Iterable[RuleVerdict]) -> Verdict | None:
    """Return the combined verdict: the strictest. None if a command has none and no other is denied or asked for.

    None also for no verdicts at all.
    """
    verdicts = [each.verdict for each in found]
    if "deny" in verdicts:
        return "deny"
    if "ask" in verdicts:
        return "ask"
    return "allow" if verdicts and all(verdict == "allow" for verdict in verdicts) else None


def verdicts_of(rows: Rows, line: str) -> list[RuleVerdict]:
    """Return the verdicts on each command of a line; [] if there are no patterns.

    Of a line that is not understood, only denials and questions remain, and a further verdict asks about the line.
    """
    # `allow: "*"` alone needs no parser, so it also covers lines that are not understood.
    if all(row == ("allow", "*") for row in rows):
        return [RuleVerdict(command=line, verdict="allow", pattern="*")] if rows else []
    whole = " ".join(line.split())
    parsed = parse(line)
    found = [each for command in parsed.commands for each in _of(rows, command)]
    # A pattern such as `*| sh*` matches no single command, only the whole line.
    strict = _strict(rows, [whole, *(_ends(whole) if parsed.broken else ())])
    if strict is not None and (parsed.broken or len(parsed.commands) != 1):
        found.append(RuleVerdict(command=whole, verdict=strict[0], pattern=strict[1]))
    if parsed.unclear:
        # An allowed command is no evidence in a line that is not understood: only denials and questions remain.
        found = [each for each in found if each.verdict in ("deny", "ask")]
        found.append(RuleVerdict(command=whole, verdict="ask", why=f"not understood: {parsed.unclear[0]}"))
    return found


def _of(rows: Rows, command: SimpleCommand) -> list[RuleVerdict]:
    """Return the verdicts on a command and on all commands that it runs."""
    if _has_no_effect(command):
        own = _strict_of(rows, command)
        return [own] if own is not None and own.pattern != "*" else []
    if not command.marked:
        return [_of_one(rows, command)]
    own = _of_wrapper(rows, command) if command.transparent else _of_one(rows, command)
    found = [] if own is None else [own]
    for part in command.inner:
        below = _of(rows, part)
        if own is not None and own.verdict == "allow" and _is_named(own.pattern, part):
            below = [each for each in below if each.verdict in ("deny", "ask")]
        found += below
    return found


def _has_no_effect(command: SimpleCommand) -> bool:
    """Return True for harmless assignments, `true`, `exit`, `set -e`, `command -v`: they need no pattern."""
    if command.writes or command.unclear:
        return False
    words = command.words
    return (
        not words
        or words[0] in ("true", "false", ":", "exit", "set")
        or words[:2] == ("command", "-v")
        or words == ("exec",)
    )


def _of_wrapper(rows: Rows, command: SimpleCommand) -> RuleVerdict | None:
    """Return the verdict on a wrapper itself: None, unless a pattern matches it or it writes into a file."""
    own = _of_one(rows, command)
    if command.writes:
        return (
            own
            if own.verdict is not None
            else RuleVerdict(command=command.text, verdict="ask", why="the command writes to a file")
        )
    return own if own.pattern not in ("", "*") or own.verdict == "deny" else None


def _of_one(rows: Rows, command: SimpleCommand) -> RuleVerdict:
    """Return the verdict on a command by itself."""
    text = " ".join((*command.assigned, *command.words, *map(written, command.writes)))
    marked = " ".join(word.replace(" ", mark(" ")) for word in command.marked)
    full = " ".join(
        (marked, *(write.replace(" ", "\0", 1).replace(" ", mark(" ")).replace("\0", " ") for write in command.writes))
    )
    doubt: RuleVerdict | None = None
    for verdict, pattern in rows:
        if verdict != "allow":
            if any(_like(each, pattern) for each in command.texts):
                return RuleVerdict(command=text, verdict=verdict, pattern=pattern)
            if doubt is None and pattern != "*" and _might_mean(command, pattern):
                doubt = RuleVerdict(
                    command=text, verdict="ask", pattern=pattern, why="the pattern may be meant to match this command"
                )
        elif doubt is None:
            writes = pattern != "*" and bool(command.writes) and re.search(r"(?:^| )>", pattern) is not None
            if _covers(full if writes else marked, pattern):
                return _allowed(command, pattern, text, redirected=writes)
    return doubt or RuleVerdict(command=text, verdict=None)


def _allowed(command: SimpleCommand, pattern: str, text: str, *, redirected: bool) -> RuleVerdict:
    """Return `allow` for a command that a pattern matches, or `ask` if it has effects that the pattern does
    not name.
    """
    why = ""
    if pattern != "*":
        does = [word for word in beyond(command.marked) or () if not names(pattern, word)]
        if command.writes and not (redirected and len(command.writes) == 1 and pattern.count(">") <= 2):
            why = "the command writes to a file"
        elif does:
            why = f"`{does[0][:80]}` may do more than read and print, and the pattern does not mention it"
    return RuleVerdict(command=text, verdict="ask" if why else "allow", pattern=pattern, why=why)


def _strict_of(rows: Rows, command: SimpleCommand) -> RuleVerdict | None:
    for verdict, pattern in rows:
        if any(_like(each, pattern) for each in command.texts):
            return None if verdict == "allow" else RuleVerdict(command=command.text, verdict=verdict, pattern=pattern)
    return None


def _might_mean(command: SimpleCommand, pattern: str) -> bool:
    """Return True if a denying pattern may match a command, or text that an unknown program makes of its arguments."""
    if any(not is_known(form) and _meets(form, pattern) for form in command.forms()):
        return True
    if not command.marked or pattern.startswith(("*", "?")):
        return False
    does = beyond(command.marked)
    if does == () or command.inner:
        return False
    if does is not None and any(not is_known(word) for word in command.marked if written(word) in does):
        return True
    return any(_like(each, pattern) for each in _ends(" ".join(command.words[1:])))


def _strict(rows: Rows, texts: Iterable[str]) -> tuple[Verdict, str] | None:
    texts = tuple(texts)
    found = [row for row in rows if row[0] != "allow" and row[1] != "*" and any(_like(text, row[1]) for text in texts)]
    return max(found, key=lambda row: row[0] == "deny") if found else None


def _ends(whole: str) -> Iterator[str]:
    """Yield every suffix of a text that begins with a word."""
    for count, found in enumerate(re.finditer(r"(?<![\w.-])[\w.]", whole)):
        if count >= _ENDS:
            return
        yield whole[found.start() :].rstrip("'\")}; ")


def _is_named(pattern: str, inner: SimpleCommand) -> bool:
    """Return True if a pattern that allows a wrapper names the inner program before its first wildcard."""
    if pattern == "*":
        return True
    if not inner.marked or inner.inner or inner.writes or beyond(inner.marked):
        return False
    return inner.words[0] in pattern.partition("*")[0].partition("?")[0].split()[1:]


def _like(text: str, pattern: str) -> bool:
    """Return True if a text matches. Only `*` and `?` are special; `git *` also matches `git`."""
    plain = pattern.replace("[", "[[]")
    return fnmatchcase(text, plain) or (plain.endswith(" *") and text == plain[:-2])


def _covers(marked: str, pattern: str) -> bool:
    """Return True if a pattern matches for every text that the shell may produce from the marked characters.

    A mark is matched by `*`, and by the same character of the pattern: `ls *.py` allows `ls *.py`, and `ls ?` does not
    allow `ls $X`. A blank within a word is marked too, so that a blank of a pattern is the end of a word.
    """
    marked = marked.replace(FILE, "")
    if pattern.endswith(" *") and not pattern[:-2].endswith((" ", "*", "?")) and marked == pattern[:-2]:
        return True
    return _expression(pattern).fullmatch(marked) is not None


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> re.Pattern[str]:
    first, *others = ["".join(map(_matcher, part)) for part in re.split(r"\*+", pattern)]
    if not others:
        return re.compile(first)
    # Atomic groups: without them, a pattern with several `*` takes polynomial time in the line's length.
    return re.compile(first + "".join(f"(?>.*?{part})" for part in others[:-1]) + f".*{others[-1]}", re.DOTALL)


def _matcher(character: str) -> str:
    if character == "?":
        return "[^\U000f0000-\U000fffff]"
    if character.isascii() and character != " ":
        return f"[{re.escape(character)}{mark(character)}]"
    return re.escape(character)


def _meets(marked: str, pattern: str) -> bool:
    """Return True if the pattern matches any text that the shell may produce from the marked characters."""
    states = {0}
    for character in marked.replace(FILE, ""):
        states = _through_stars(states, pattern)
        if is_known(character):
            states = {
                at if pattern[at] == "*" else at + 1
                for at in states
                if at < len(pattern) and pattern[at] in ("*", "?", character)
            }
        else:  # Any text, including an empty one.
            least = min(states, default=len(pattern) + 1)
            states = set(range(least, len(pattern) + 1))
        if not states:
            return False
    states = _through_stars(states, pattern)
    return len(pattern) in states or any(pattern[at:].strip(" *") == "" for at in states)


def _through_stars(states: set[int], pattern: str) -> set[int]:
    found = set(states)
    for at in states:
        while at < len(pattern) and pattern[at] == "*":
            at += 1
            found.add(at)
    return found
