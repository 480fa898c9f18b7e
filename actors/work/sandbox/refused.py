"""Parser of the messages that programs print after a sandbox has refused a write, to find the paths.

No other way works on every kernel. The patterns match libc, bash, Python, Node and Rust. A program that prints nothing,
or another text, gets no question to the user.
"""

from __future__ import annotations

import os
import re

_WHY = r"(?:Read-only file system|Permission denied|Operation not permitted|read-only file system|permission denied)"
_SAID = (
    re.compile(r"['\"`‘“](?P<path>[^'\"`’”\n]+)['\"`’”]: " + _WHY),  # touch: cannot touch '/x': Read-only ...
    re.compile(r"(?P<path>[^\s:'\"]*/[^\s:'\"]*): " + _WHY),  # bash: line 1: /x/y: Read-only ...
    re.compile(r"\[Errno (?:1|13|30)\] [^:\n]+: '(?P<path>[^'\n]+)'"),  # Python
    re.compile(r"E(?:ROFS|ACCES|PERM): [^,\n]+, \w+ '(?P<path>[^'\n]+)'"),  # Node
    re.compile(r"[`'\"](?P<path>/[^`'\"\n]+)[`'\"][^\n]*\n?[^\n]*\(os error (?:1|13|30)\)"),  # Rust
)

_NO_NETWORK = re.compile(
    r"could not resolve|couldn't resolve|name resolution|name or service not known|getaddrinfo|ENOTFOUND|EAI_AGAIN|"
    r"network is unreachable|ENETUNREACH|failed to connect|couldn't connect|connection error|no route to host|"
    r"socket: (operation not permitted|permission denied)|\[Errno (1|13|97|101)\].*(socket|connect|urlopen|network)",
    re.IGNORECASE,
)

_MISSING = (
    re.compile(r"(?:ENOENT: [^,\n]+, \w+|can't open file|Cannot find module) '(?P<path>/[^'\n]+)'"),  # Node, Python
    re.compile(r"\[Errno 2\] [^:\n]+: '(?P<path>/[^'\n]+)'"),
    re.compile(r"(?P<path>/[^\s:'\"]+)['\"]?: No such file"),  # bubblewrap, shells
)
_DATABASE = re.compile(r"unable to open database file|attempt to write a readonly database", re.IGNORECASE)

MOST = 20
"""Paths returned at most."""


def missed_network(said: str) -> bool:
    """Return True if the output complains of a missing network."""
    return _NO_NETWORK.search(said) is not None


def missing_paths(said: str) -> list[str]:
    """Return the absolute paths that the output reports as missing, which may be hidden by the sandbox."""
    found = [os.path.normpath(match["path"]) for pattern in _MISSING for match in pattern.finditer(said)]
    return list(dict.fromkeys(found))[:MOST]


def names_database(said: str) -> bool:
    """Return True for SQLite's messages when it can't write a database or its journal. They name no path."""
    return _DATABASE.search(said) is not None


def refused_paths(said: str, cwd: str) -> list[str]:
    """Return the absolute paths that the output reports as refused, the last one first."""
    found = {}
    for pattern in _SAID:
        for match in pattern.finditer(said):
            found[os.path.realpath(os.path.join(cwd, match["path"]))] = match.start()
    return sorted(found, key=lambda path: -found[path])[:MOST]
