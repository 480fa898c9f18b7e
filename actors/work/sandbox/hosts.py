"""Host lists of the sandbox: syntax and matching.

    api.github.com          that name, at the ports 80 and 443, as every entry without a port
    api.github.com:22       that port alone
    *.pypi.org              every name that ends so, and `pypi.org`
    localhost:8080, 10.0.0.7, [::1]:8080
    *                       every host

A pattern never matches a private address or a name that resolves to one: those must be listed by name.
"""

from __future__ import annotations

from collections.abc import Iterable

WEB = (80, 443)


def host_and_port(host: str, port: int) -> str:
    """Return a host and a port in the syntax of the lists; the port only if it is not 80 or 443."""
    name = f"[{host}]" if ":" in host else host
    return name if port in WEB else f"{name}:{port}"


def split_host(text: str) -> tuple[str, int]:
    """Return the host and the port of a text from `host_and_port`; 80 if it has none."""
    name, ports = _parts(text)
    return name, ports[0]


def named(listed: Iterable[str], host: str, port: int) -> bool:
    """Return True if a list names this very host and port, not by a pattern."""
    return matches_host((each for each in listed if not each.startswith("*")), host, port)


def matches_host(listed: Iterable[str], host: str, port: int) -> bool:
    """Return True if a list matches this host and port, by the name or by a pattern."""
    name = plain(host)
    return any(_like(name, pattern) and port in ports for pattern, ports in map(_parts, listed))


def means(pattern: str, host: str, port: int) -> bool:
    """Return True if a rule matches this host; a rule without a port matches all ports."""
    name, ports = _parts(pattern)
    return _like(plain(host), name) and (ports is WEB or port in ports)


def is_unbounded(listed: Iterable[str]) -> bool:
    """Return True if a list matches every host, or every host of a whole top-level domain (`*`, `*.com`)."""
    return any(name == "*" or (name.startswith("*.") and "." not in name[2:]) for name, _ in map(_parts, listed))


def plain(host: str) -> str:
    """Return the canonical spelling of a host: without brackets and final dot, in lower case."""
    return host.strip("[]").rstrip(".").lower()


def _parts(text: str) -> tuple[str, tuple[int, ...]]:
    name, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or (":" in name and not name.endswith("]")):
        return plain(text), WEB
    return plain(name), (int(port),)


def _like(name: str, pattern: str) -> bool:
    if pattern == "*":
        return True
    return name == pattern or (pattern.startswith("*.") and (name == pattern[2:] or name.endswith(pattern[1:])))
