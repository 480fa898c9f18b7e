"""Evaluation of permission rules (`protocol.permissions`) for one call, and the file access of a permitted call.

A rule is selected by the tool's name. Rules named `server:NAME` and `host:NAME` apply to calls that go to that MCP
server or host, whichever tool makes them. Of several applicable rules the strictest wins.

**Path patterns.** A path is compared as an absolute path, in up to three forms (`forms_of`):

    as written      normalized: `src/../x` is `x`
    its entry       links above its last part are resolved, as `fs_rm` does
    its target      all links are resolved, as reading and writing do

A `deny` or an `ask` applies if any form matches, an `allow` only if all forms match. A link can therefore make a path
no longer allowed, but never no longer denied.

A pattern is translated to regular expressions on absolute paths. The part before its first `*` or `?` is relative to
the run's directory. In a `deny` or an `ask`, its links are resolved too: `private/*` still denies the files when
`private` is a link and a call names the target directory. A denial includes everything below the path.

A link may be swapped between the check and the use. A call therefore receives a `FileAccess`: the paths that were
judged, and the rules for other files that it opens. Each file that it opens must be one of the judged paths, or pass
those rules.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase, translate
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from ....protocol.permissions import PermissionRule, Verdict
from ....protocol.permissions import Permissions as Rules
from ..sandbox.hosts import means
from .tool import Arguments, Json, Tool, text_of

SERVER, HOST = "server:", "host:"

_VALUES = 1_000
"""Maximum number of texts among the arguments of a call that patterns are matched with."""

_LONGEST_PATH = 4_096
_FILE_URI = re.compile(r"file:(?://(?:localhost)?)?(?=/)", re.IGNORECASE)


class JudgedCall:
    """A tool call prepared for comparison with rules.

    Attributes:
        tool, here: the arguments.
        names: names by which rules may refer to the tool.
        text: the text that patterns are matched with: the subject, or else the JSON text of all arguments.
        forms: the absolute paths of the subject, if it is a path (`forms_of`).
        server: the MCP server that the call goes to; "" for none.
        fold: see `PathRule.verdict`.
    """

    def __init__(self, tool: Tool, arguments: Arguments, here: PathContext) -> None:
        self.tool = tool
        self.here = here
        self.names = (tool.name, tool.alias) if tool.alias else (tool.name,)
        value = arguments.get(tool.subject) or "" if tool.subject else arguments
        text = value if isinstance(value, str) else text_of(value)
        path = tool.subject == "path"
        self.text = text if path else text.strip()
        self.forms = forms_of(text, here) if path else ()
        self.server = tool.alias.partition("__")[0] if tool.origin == "mcp" else ""
        self.fold = (path or tool.reads) and folds(self.forms[-1] if self.forms else here.real)
        self._arguments = arguments

    @cached_property
    def host(self) -> tuple[str, int] | None:
        """Host and port of the call, if its subject is a valid URL; None otherwise."""
        if self.tool.subject != "url":
            return None
        try:
            url = urlsplit(self.text if "://" in self.text else f"https://{self.text}")
            return (url.hostname, url.port or (80 if url.scheme == "http" else 443)) if url.hostname else None
        except ValueError:
            return None

    @cached_property
    def values(self) -> list[tuple[str, tuple[str, ...]]]:
        """The other texts among the arguments, each with the paths that it may mean.

        Empty for a built-in tool with a subject.
        """
        if self.tool.origin == "builtin" and self.tool.subject:
            return []
        others = {name: value for name, value in self._arguments.items() if name != self.tool.subject}
        return [(text, _as_path(text, self.here)) for text in _texts_in(others)]


def ruled(rules: Rules, call: JudgedCall) -> Verdict | None:
    """Return the verdict of these rules on a call; None if no rule applies."""
    rule = rule_for(rules, call.names)
    said = by_subject(rule, call) if isinstance(rule, PermissionRule) else rule
    for _, other in places(rules, call):
        found = by_subject(other, call) if isinstance(other, PermissionRule) else other
        said = found if said is None else stricter(said, found)
    return said


def denials(rules: Rules) -> Rules:
    """Return the rules without their permissions and questions.

    A rule's `allow` is included if it also denies: a longer `allow` pattern is an exception from a denial.
    """
    found: Rules = {}
    for name, rule in rules.items():
        if rule == "deny":
            found[name] = rule
        elif isinstance(rule, PermissionRule):
            found[name] = PermissionRule(allow=rule.allow, deny=rule.deny)
    return found


def of_denials(rules: Rules, call: JudgedCall) -> Verdict | None:
    """Return `deny` for a call that rules deny, `ask` for a shell line that they may deny, else None."""
    if not call.tool.shell:
        return "deny" if ruled(rules, call) == "deny" else None
    said = ruled(denials(rules), call)
    return None if said == "allow" else said


def places(rules: Rules, call: JudgedCall) -> list[tuple[str, Verdict | PermissionRule]]:
    """Return the rules for the server and the host that the call goes to, with their names."""
    return [(name, rule) for name, rule in rules.items() if ":" in name and _is_there(name, call)]


def _is_there(name: str, call: JudgedCall) -> bool:
    if name.startswith(SERVER):
        return bool(call.server) and fnmatchcase(call.server, name[len(SERVER) :])
    return name.startswith(HOST) and call.host is not None and means(name[len(HOST) :], *call.host)


def of_host(rules: Rules, host: str, port: int) -> tuple[Verdict, str] | None:
    """Return the verdict of these rules on a network host, and the longest pattern that matches it.

    None if no pattern matches.
    """
    found = []
    for name, rule in rules.items():
        if name.startswith(HOST) and isinstance(rule, str) and means(name[len(HOST) :], host, port):
            found.append((len(name), STRICTNESS[rule], rule, name[len(HOST) :]))
    return max(found)[2:] if found else None


def rule_for(rules: Rules, called: tuple[str, ...]) -> Verdict | PermissionRule | None:
    """Return the rule for a tool by its names; None if there is none.

    A full name precedes patterns; of those the longest wins.
    """
    for name in called:
        if name in rules:
            return rules[name]
    names = [name for name in rules if any(fnmatchcase(each, name) for each in called)]
    return rules[max(names, key=len)] if names else None


def stricter(said: Verdict, other: Verdict | None) -> Verdict:
    """Return the stricter of two verdicts; `other` does not count if it is None."""
    return said if other is None or STRICTNESS[said] >= STRICTNESS[other] else other


def by_subject(rule: PermissionRule, call: JudgedCall) -> Verdict | None:
    """Return the verdict of a rule's patterns on a call: on its path, its shell command, or its text.

    None if no pattern applies. Further paths among the arguments count only for `deny` and `ask`.
    """
    if call.tool.subject == "path":
        paths = PathRule.of(rule, call.here)
        said = paths.verdict(call.forms, fold=call.fold)
        others = [paths.verdict(forms, fold=call.fold) for _, forms in call.values if forms]
        # Further paths among the arguments can only make the verdict stricter.
        counting = (said, *(other for other in others if other != "allow"))
        return max(counting, key=lambda each: -1 if each is None else STRICTNESS[each])
    if call.tool.shell:
        from .shell_rules import judged

        return judged(weighed(rule), call.text)
    return next((verdict for verdict, pattern in weighed(rule) if _matches(pattern, verdict, call)), None)


def _matches(pattern: str, verdict: Verdict, call: JudgedCall) -> bool:
    if _like(call.text, pattern):
        return True
    if verdict == "allow" or not call.values:
        return False
    # Arguments of a tool without a path subject may still be paths: for strict verdicts compare them both ways.
    rule = PathRule.of(PermissionRule(deny=(pattern,)), call.here)
    return any(_like(text, pattern) or rule.verdict(forms) is not None for text, forms in call.values)


def _like(text: str, pattern: str) -> bool:
    """Return True if a text matches. Only `*` and `?` are special."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def _texts_in(arguments: Json) -> list[str]:
    found: list[str] = []
    todo = [arguments]
    while todo and len(found) < _VALUES:
        value = todo.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            todo += reversed(value.values())
        elif isinstance(value, list):
            todo += reversed(value)
    return found


def _as_path(text: str, here: PathContext) -> tuple[str, ...]:
    """Return the paths that a text among an external tool's arguments may mean; none if it looks like plain words."""
    if not text or len(text) > _LONGEST_PATH or "\n" in text or "\0" in text:
        return ()
    uri = _FILE_URI.match(text)
    if uri is not None:  # A tool may decode the rest of the URI or use it unchanged, so both forms count.
        path = text[uri.end() :]
        return tuple(dict.fromkeys((*forms_of(unquote(path), here), *forms_of(path, here))))
    if "://" in text:
        return ()
    if not text.startswith(("/", "./", "../", "~")):
        first = text.partition("/")[0]
        # A plain word counts as a path only if its first component exists.
        if not os.path.lexists(os.path.join(here.real, first)):  # noqa: PTH118 - texts
            return ()
    return forms_of(os.path.expanduser(text), here)  # noqa: PTH111 - texts


STRICTNESS: Mapping[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}
_WILD = re.compile(r"[*?]")


class PathContext(msgspec.Struct, frozen=True):
    """Directory of a run: as given, and with all links resolved."""

    given: str
    real: str

    @classmethod
    def of(cls, directory: Path | None) -> PathContext:
        """Return the forms of a directory; None for the process's working directory."""
        given = os.path.abspath(directory or os.curdir)  # noqa: PTH100 - links are kept
        return cls(given, os.path.realpath(given))


def forms_of(text: str, here: PathContext) -> tuple[str, ...]:
    """Return the absolute paths that a text may mean (see the module), the link target last.

    Empty for an invalid path.
    """
    whole = os.path.join(here.given, text or os.curdir)  # noqa: PTH118 - pathlib would drop a final `/.`
    try:
        os.fsencode(whole)
        real = os.path.realpath(whole)
        head, tail = os.path.split(whole.rstrip("/"))
        entry = real if tail in ("", os.curdir, os.pardir) else f"{os.path.realpath(head).rstrip('/')}/{tail}"
    except (UnicodeError, ValueError):
        return ()
    # Reversed twice: of equal forms the last remains, so that the target is always the last form.
    return tuple(dict.fromkeys((_plain(whole), entry, real)[::-1]))[::-1]


def folds(path: str) -> bool:
    """Return True if the file system ignores case in a name on the way to `path`."""
    while (parent := os.path.dirname(path)) != path:  # noqa: PTH120 - texts
        name = path[len(parent) :]
        try:
            if name != name.swapcase() and os.path.samestat(os.lstat(path), os.lstat(parent + name.swapcase())):
                return True
        except OSError:
            pass  # No such name: the file system distinguishes case here.
        path = parent
    return False


def weighed(rule: PermissionRule) -> list[tuple[Verdict, str]]:
    """Return a rule's patterns with their verdicts in order of precedence: longest, then strictest, first."""
    said: Mapping[Verdict, tuple[str, ...] | None] = {"allow": rule.allow, "ask": rule.ask, "deny": rule.deny}
    rows = [(verdict, pattern) for verdict, patterns in said.items() for pattern in patterns or ()]
    return sorted(rows, key=lambda row: (len(row[1]), STRICTNESS[row[0]]), reverse=True)


class PathRule(msgspec.Struct, frozen=True):
    """A rule's patterns as expressions on absolute paths, in order of precedence."""

    rows: tuple[tuple[Verdict, str], ...]

    @classmethod
    def of(cls, rule: PermissionRule, here: PathContext) -> PathRule:
        """Compile the patterns relative to a run's directory, with its links resolved now."""
        rows = ((verdict, "|".join(_expressions(pattern, verdict, here))) for verdict, pattern in weighed(rule))
        return cls(tuple(rows))

    def verdict(self, forms: Sequence[str], *, fold: bool = False) -> Verdict | None:
        """Return the verdict on a path; None if no pattern matches.

        Args:
            fold: ignore case in `deny` and `ask` patterns.
        """
        for verdict, expression in self.rows:
            # Ignoring case may only make a rule stricter, so it never applies to `allow`.
            match = re.compile(expression, re.IGNORECASE if fold and verdict != "allow" else 0).match
            if any(map(match, forms)) if verdict != "allow" else forms and all(map(match, forms)):
                return verdict
        return None


class Bar(msgspec.Struct, frozen=True):
    """A rule, with the verdicts of it that block a path."""

    verdicts: frozenset[Verdict]
    rule: PathRule


class FileAccess(msgspec.Struct, frozen=True, kw_only=True):
    """File access of a permitted call.

    Attributes:
        judged: the forms of the call's own path; empty where no path was judged.
        bars: rules for every other path that the call opens.
        fold: see `PathRule.verdict`.
        leads: the link target of the call's own path if it differs from the path as written; else "".
        readers: rules that deny reading file contents, for a call that changes files.
    """

    judged: frozenset[str] = frozenset()
    bars: tuple[Bar, ...] = ()
    fold: bool = False
    leads: str = ""
    readers: tuple[Bar, ...] = ()

    def moved(self, real: str) -> bool:
        """Return True if the call's path now resolves to `real`, a path that was not judged."""
        return bool(self.judged) and real not in self.judged

    def hides(self, *forms: str) -> bool:
        """Return True if a path must be neither read nor changed."""
        return any(bar.rule.verdict(forms, fold=self.fold) in bar.verdicts for bar in self.bars)

    def unshown(self, *forms: str) -> bool:
        """Return True if the contents of a changed file must not appear in diffs or events."""
        return any(bar.rule.verdict(forms, fold=self.fold) in bar.verdicts for bar in self.readers)

    def to_wire(self) -> dict[str, Any]:
        """Return the rules for `workers/search.py`, which runs in a process without this package."""
        bars = [{"verdicts": sorted(bar.verdicts), "rows": bar.rule.rows} for bar in self.bars]
        return {"bars": bars, "fold": self.fold}


def _expressions(pattern: str, verdict: Verdict, here: PathContext) -> Iterator[str]:
    """Yield the regular expressions of a pattern, without capturing groups. Each matches whole absolute paths."""
    if pattern == "~" or pattern.startswith("~/"):
        pattern = os.path.expanduser(pattern)  # noqa: PTH111 - a text
    pattern = pattern.rstrip("/") or "/"
    strict = verdict != "allow"
    # A pattern that begins with a wildcard is matched with the whole absolute path as well.
    if _WILD.match(pattern):
        yield from _shapes("", pattern, below=strict)
    heads: dict[tuple[str, str], None] = {}
    # A call may name the run's directory by either path.
    for base in (here.given, here.real):
        parts = os.path.join(base, pattern).split("/")  # noqa: PTH118 - texts
        wild = next((at for at, part in enumerate(parts) if _WILD.search(part)), len(parts))
        head, tail = "/".join(parts[:wild]) or "/", "/".join(parts[wild:])
        heads[_plain(head), tail] = None
        if strict:
            heads[os.path.realpath(head), tail] = None
    for head, tail in heads:
        yield from _shapes(head, tail, below=strict)


def _shapes(head: str, tail: str, *, below: bool) -> Iterator[str]:
    """Yield expressions for the literal `head` followed by the pattern `tail`; `dir/*` includes the directory itself.

    Args:
        below: include everything below the matching paths.
    """
    start = re.escape(head.rstrip("/"))
    slash = "/" if head else ""
    if not tail:
        yield f"{start or '/'}{translate('')}"
    else:
        yield f"{start}{slash}{_translated(tail)}"
        if tail == "*" and head:
            yield f"{start or '/'}{translate('')}"
        elif tail.endswith("/*"):
            yield f"{start}{slash}{_translated(tail[:-2])}"
    if below and not tail.endswith("*"):
        yield f"{start}{slash}{_translated(f'{tail}/*' if tail else '*')}"


def _translated(pattern: str) -> str:
    """Translate as `fnmatch` does, but treat `[` as a literal character."""
    return translate(pattern.replace("[", "[[]"))


def _plain(path: str) -> str:
    return "/" + os.path.normpath(path).lstrip("/")
