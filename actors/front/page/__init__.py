"""The web page of a server: static files, and the headers they are sent with.

The page consists of plain HTML, CSS and ES modules: no framework, no build step, nothing from other hosts. It uses only
the public websocket. `model/` holds its state (pure, tested with node), `views/` renders it, and `main.js` connects
them; start there. Text of models and tools is untrusted, so it is only ever inserted as text.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
"""Headers of every file of the page."""

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """File of the web page, with its headers."""

    content_type: str
    body: bytes


def asset(path: str) -> Asset | None:
    """Return the file for a request path, `/` or below `/ui/`; None if there is none.

    The path is looked up among known names. It is never joined to a directory, so it cannot escape.
    """
    return _assets().get(path)


@cache
def _assets() -> dict[str, Asset]:
    home = Path(__file__).parent
    files = {
        f"/ui/{file.relative_to(home).as_posix()}": Asset(_TYPES[file.suffix], file.read_bytes())
        for file in sorted(home.rglob("*"))
        if file.suffix in _TYPES
    }
    return {**files, "/": files["/ui/index.html"]}
