"""What makes two servers the same one: everything their process or session is made of, and who shares it.

The digest covers transport, command, arguments in order, environment and directory, or URL and headers, all as they
are after `${NAME}` was put in; and what we declare to the server, since some offer other tools then. Names, time
limits and lists of tools are ours alone: two entries that differ only in these are one server. Digests name files
and status lines: what is secret goes in, and does not come out.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, final

import msgspec

from .....protocol.mcp.config import Server

if TYPE_CHECKING:
    from ..client.connect import Abilities


@final
class Key:
    """What the pool shares by: a digest, and by whom (`""` for everybody, else a run, an agent, a conversation).

    Attributes:
        server: how it is started; not compared.
    """

    __slots__ = ("_hash", "by", "digest", "server")

    def __init__(self, server: Server, digest: str, by: str = "") -> None:
        self.server = server
        self.digest = digest
        self.by = by
        self._hash = hash((digest, by))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Key) and self.digest == other.digest and self.by == other.by)

    def __str__(self) -> str:
        return self.server.name


def _directory(server: Server) -> str | None:
    """Where it works. Where the entry doesn't say, ours counts only if that decides what is started: `server.py` is
    another program in another directory, and what one offers must not be remembered of the other."""
    if server.cwd is not None:
        return str(Path(server.cwd).absolute())
    words = (server.command, *server.args) if os.sep in server.command else server.args
    near = any(word and not os.path.isabs(word) and os.path.exists(word) for word in words)  # noqa: PTH110, PTH117 - words, most are no paths
    return str(Path.cwd()) if near else None


def digest_of(server: Server, declared: Abilities) -> str:
    """SHA-256 of what the server is made of; `server` is resolved, `declared` what we tell it that we can do."""
    made_of = (
        [server.command, server.args, server.env, _directory(server), server.inherit_env]
        if server.type == "stdio"
        else [server.url, server.headers]
    )
    whole = [server.type, made_of, server.max_message_bytes, declared.elicitation, declared.sampling, server.roots]
    return hashlib.sha256(msgspec.json.encode(whole, order="deterministic")).hexdigest()
