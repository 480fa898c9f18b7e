"""Which paths the patterns of permissions mean, and what a permitted call may show and touch.

A path is compared as an absolute one, in up to three forms (`forms_of`):

    as it is written    made plain: `src/../x` is `x`
    its entry           the links above its last part are followed, as `fs_rm` does it
    where it leads      all links are followed, as reading and writing do it

A `deny` or an `ask` holds if any of the forms matches, an `allow` only if all of them do. So a link can take a path
out of what is allowed, and never out of what is denied.

A pattern becomes regular expressions on absolute paths. What stands before its first `*` or `?` is seen from the run's
directory; in a `deny` or an `ask` its links are followed too, so that `private/*` still denies the files when `private`
is a link and a call names the directory behind it. What is denied is so with all that is below it.

Between the judgement and the use a link may be put in the way. A call is therefore handed a `FileAccess`: the paths
that were judged, and the rules for what else it comes across. What it opens has to be one of the former.
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


class Here(msgspec.Struct, frozen=True):
    """A run's directory: as it was given, and without links."""

    given: str
    real: str

    @classmethod
    def of(cls, directory: Path | None) -> Here:
        """That directory; None for the process's own."""
        given = os.path.abspath(directory or os.curdir)  # noqa: PTH100 - links are kept
        return cls(given, os.path.realpath(given))


def forms_of(text: str, here: Here) -> tuple[str, ...]:
    """The absolute paths that a text stands for, see the module; the last is where it leads. None if it is no path."""
    whole = os.path.join(here.given, text or os.curdir)  # noqa: PTH118 - pathlib would drop a final `/.`
    try:
        os.fsencode(whole)
        real = os.path.realpath(whole)
        head, tail = os.path.split(whole.rstrip("/"))
        entry = real if tail in ("", os.curdir, os.pardir) else f"{os.path.realpath(head).rstrip('/')}/{tail}"
    except (UnicodeError, ValueError):
        return ()
    return tuple(dict.fromkeys((_plain(whole), entry, real)[::-1]))[::-1]


def folds(path: str) -> bool:
    """Whether a name on the way to `path` means the same file in another case, as on some file systems all names do."""
    while (parent := os.path.dirname(path)) != path:  # noqa: PTH120 - texts
        name = path[len(parent) :]
        try:
            if name != name.swapcase() and os.path.samestat(os.lstat(path), os.lstat(parent + name.swapcase())):
                return True
        except OSError:
            pass  # there is no such name, as it should be
        path = parent
    return False


def weighed(rule: PermissionRule) -> list[tuple[Verdict, str]]:
    """A rule's patterns with their verdicts; the one that counts most, the longest and then the strictest, first."""
    said: Mapping[Verdict, tuple[str, ...] | None] = {"allow": rule.allow, "ask": rule.ask, "deny": rule.deny}
    rows = [(verdict, pattern) for verdict, patterns in said.items() for pattern in patterns or ()]
    return sorted(rows, key=lambda row: (len(row[1]), STRICTNESS[row[0]]), reverse=True)


class PathRule(msgspec.Struct, frozen=True):
    """A rule's patterns, each as one expression on absolute paths; the row that counts most comes first."""

    rows: tuple[tuple[Verdict, str], ...]

    @classmethod
    def of(cls, rule: PermissionRule, here: Here) -> PathRule:
        """The patterns, seen from a run's directory as its links are now."""
        rows = ((verdict, "|".join(_expressions(pattern, verdict, here))) for verdict, pattern in weighed(rule))
        return cls(tuple(rows))

    def verdict(self, forms: Sequence[str], *, fold: bool = False) -> Verdict | None:
        """What becomes of a path; None if no pattern matches.

        Args:
            fold: case makes no difference to what is denied or asked for.
        """
        for verdict, expression in self.rows:
            match = re.compile(expression, re.IGNORECASE if fold and verdict != "allow" else 0).match
            if any(map(match, forms)) if verdict != "allow" else forms and all(map(match, forms)):
                return verdict
        return None


class Bar(msgspec.Struct, frozen=True):
    """A rule, and which of its verdicts bar a path."""

    verdicts: frozenset[Verdict]
    rule: PathRule


class FileAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Which files a permitted call may show and touch.

    Attributes:
        judged: the forms of its own path; empty where no path was judged.
        bars: what holds for every other path that the call comes across.
        fold: see `PathRule.verdict`.
        leads: where links take its own path, if that is not where it seems to be; else "".
        readers: the rules that deny showing what is in files, for a call that changes them.
    """

    judged: frozenset[str] = frozenset()
    bars: tuple[Bar, ...] = ()
    fold: bool = False
    leads: str = ""
    readers: tuple[Bar, ...] = ()

    def moved(self, real: str) -> bool:
        """Whether what the call's path leads to now, `real`, is not what was judged."""
        return bool(self.judged) and real not in self.judged

    def hides(self, *forms: str) -> bool:
        """Whether a path must be neither shown nor touched."""
        return any(bar.rule.verdict(forms, fold=self.fold) in bar.verdicts for bar in self.bars)

    def unshown(self, *forms: str) -> bool:
        """Whether people who follow a call that changes a path must not be shown what is in it either."""
        return any(bar.rule.verdict(forms, fold=self.fold) in bar.verdicts for bar in self.readers)

    def to_wire(self) -> dict[str, Any]:
        """For `workers/search.py`, which imports nothing of ours."""
        bars = [{"verdicts": sorted(bar.verdicts), "rows": bar.rule.rows} for bar in self.bars]
        return {"bars": bars, "fold": self.fold}


def _expressions(pattern: str, verdict: Verdict, here: Here) -> Iterator[str]:
    """What a pattern means: regular expressions without groups, each of which matches whole absolute paths."""
    if pattern == "~" or pattern.startswith("~/"):
        pattern = os.path.expanduser(pattern)  # noqa: PTH111 - a text
    pattern = pattern.rstrip("/") or "/"
    strict = verdict != "allow"
    if _WILD.match(pattern):
        yield from _shapes("", pattern, below=strict)
    heads: dict[tuple[str, str], None] = {}
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
    """Expressions for the literal `head` followed by the pattern `tail`; `dir/*` means the directory as well.

    Args:
        below: also what is below the paths that match.
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
    """As `fnmatch` has it, but that `[` is not special."""
    return translate(pattern.replace("[", "[[]"))


def _plain(path: str) -> str:
    return "/" + os.path.normpath(path).lstrip("/")
