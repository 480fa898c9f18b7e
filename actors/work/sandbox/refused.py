"""What programs say when a sandbox has refused them a write: which paths they name.

There is no other way to learn of it that every kernel has. The words are those of libc, bash, Python, Node and Rust; a
program that says nothing, or something else, is not helped.
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

MOST = 20
"""Paths that are looked at."""


def missed_network(said: str) -> bool:
    """Whether a program has complained of a network that it does not have."""
    return _NO_NETWORK.search(said) is not None


def refused_paths(said: str, cwd: str) -> list[str]:
    """The absolute paths that a program has named as refused, the last one first."""
    found = {}
    for pattern in _SAID:
        for match in pattern.finditer(said):
            found[os.path.realpath(os.path.join(cwd, match["path"]))] = match.start()
    return sorted(found, key=lambda path: -found[path])[:MOST]
