"""Removal of the server's own paths from replies to callers without the scope `run:files`.

Paths get into replies in more ways than could be listed: targets of runs, errors of the operating system, warnings
about files, results of tools. So they are removed where a reply is sent, over HTTP and over websockets. A path below a
directory of the server is replaced with the directory's name: `[config]/agents/coder/config.yaml`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, final

import msgspec

from ....protocol.control.caller import Caller
from ...io.directories import cache_dir, data_dir, state_dir
from ...io.temporary import system_directory

if TYPE_CHECKING:
    from starlette.types import Message, Send

SCOPE = "run:files"
"""Scope of callers that may see paths."""


@final
class ServerPaths:
    """Replacement of the server's paths.

    Args:
        directories: paths by their replacement. The deeper one of two nested directories wins.
    """

    def __init__(self, directories: Mapping[str, str | os.PathLike[str]]) -> None:
        names: dict[bytes, bytes] = {}
        for name, given in directories.items():
            for path in (os.fspath(given), os.path.realpath(given)):
                if path.startswith("/") and path != "/":
                    names.setdefault(_in_json(path), f"[{name}]".encode())
        longest_first = sorted(names, key=len, reverse=True)
        self._names = names
        # Not within another path, but also after `file://` and an escaped line break in JSON.
        before = rb"(?:(?<![\w.~-])(?<![\w.]/)|(?<=\\[nrt]))"
        self._pattern = re.compile(before + b"(?:" + b"|".join(map(re.escape, longest_first)) + rb")(?![\w.-])")

    def hidden(self, data: bytes) -> bytes:
        """Replace the server's paths in the bytes of a reply, or of a part of one."""
        return self._pattern.sub(lambda found: self._names[found[0]], data)

    def for_caller(self, caller: Caller, data: bytes) -> bytes:
        """Return a reply with the server's paths replaced, unless the caller has the scope `run:files`."""
        return data if caller.has(SCOPE) else self.hidden(data)

    def over_http(self, caller: Caller, send: Send) -> Send:
        """Wrap an ASGI application's `send` for the replies to a caller."""
        if caller.has(SCOPE):
            return send
        begin: Message | None = None

        async def without(message: Message) -> None:
            nonlocal begin
            if message["type"] == "http.response.start":
                begin = message  # its length is known with the body
                return
            if message["type"] == "http.response.body" and message.get("body"):
                body = self.hidden(message["body"])
                if begin is not None and not message.get("more_body"):
                    begin = {**begin, "headers": _with_length(begin.get("headers", ()), len(body))}
                message = {**message, "body": body}
            if begin is not None:
                first, begin = begin, None
                await send(first)
            await send(message)

        return without

    def over_websocket(
        self, caller: Caller, send: Callable[[bytes], Awaitable[None]]
    ) -> Callable[[bytes], Awaitable[None]]:
        """Wrap a websocket's `send` for the frames to a caller."""
        if caller.has(SCOPE):
            return send
        return lambda frame: send(self.hidden(frame))


def paths_of_server(config_dir: str | os.PathLike[str], environ: Mapping[str, str]) -> ServerPaths:
    """Return the replacement for a server with this configuration directory."""
    here = {}
    with contextlib.suppress(OSError):  # the directory may have been removed
        here["cwd"] = Path.cwd()
    return ServerPaths(
        {
            "config": config_dir,
            "state": state_dir(environ),
            "cache": cache_dir(environ),
            "data": data_dir(environ),
            "callboard": Path(__file__).resolve().parents[3],
            **here,
            "home": environ.get("HOME") or Path.home(),
            "python": sys.prefix,
            "base-python": sys.base_prefix,
            "tmp": system_directory(environ),
        }
    )


def _in_json(path: str) -> bytes:
    return msgspec.json.encode(path)[1:-1]


def _with_length(headers: object, length: int) -> list[tuple[bytes, bytes]]:
    assert isinstance(headers, list | tuple)
    return [
        (name, str(length).encode() if bytes(name).lower() == b"content-length" else value) for name, value in headers
    ]
