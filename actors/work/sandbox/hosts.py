"""Which hosts a list means.

    api.github.com          that name, at the ports of http and https
    api.github.com:22       that port alone
    *.pypi.org              every name that ends so, and `pypi.org`
    localhost:8080, 10.0.0.7, [::1]:8080
    *                       every host

A pattern never means a private address or a name that leads to one: those have to be named.
"""

from __future__ import annotations

from collections.abc import Iterable

WEB = (80, 443)


def shown(host: str, port: int) -> str:
    """A host and a port as lists and people name them; the port only where it is not one of the web's."""
    name = f"[{host}]" if ":" in host else host
    return name if port in WEB else f"{name}:{port}"


def named(listed: Iterable[str], host: str, port: int) -> bool:
    """Whether a list names this very host, and not by a pattern."""
    return meant((each for each in listed if not each.startswith("*")), host, port)


def meant(listed: Iterable[str], host: str, port: int) -> bool:
    """Whether a list means this host, by its name or by a pattern."""
    name = plain(host)
    return any(_like(name, pattern) and port in ports for pattern, ports in map(_parts, listed))


def means(pattern: str, host: str, port: int) -> bool:
    """Whether a rule means this host; one without a port means all of its ports."""
    name, ports = _parts(pattern)
    return _like(plain(host), name) and (ports is WEB or port in ports)


def plain(host: str) -> str:
    """One spelling of a host."""
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
