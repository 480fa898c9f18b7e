"""Path patterns of permission rules, and the file access of a permitted call.

A path is compared as an absolute path, in up to three forms (`forms_of`):

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
from fnmatch import translate
from pathlib import Path
from typing import Any

import msgspec

from ....protocol.permissions import PermissionRule, Verdict

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
