"""The page: what a browser shows of the server it is served by. Static files, and how they go out.

HTML, CSS and ES modules as they are written: no framework, no build step, nothing from elsewhere. The page knows the
public websocket and nothing else of us. `model/` is what it knows (pure, tested with node), `views/` is what it
shows, `main.js` ties them together; start there. Text of models and tools is a stranger's: it only ever becomes text.
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
"""What every file of the page is sent with."""

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """One file of the page, ready to send."""

    content_type: str
    body: bytes


def asset(path: str) -> Asset | None:
    """The file at the path of a request, `/` or below `/ui/`; None if the page has none there.

    A path is looked up among the names that there are, and never joined to anything.
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
