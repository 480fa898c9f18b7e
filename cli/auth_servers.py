"""What `callboard auth login`, `status` and `logout` do with MCP servers."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any

import trio

from .. import Root
from ..actors.io.directories import config_dir as configured
from ..actors.io.oauth.authorization import Authorization
from ..actors.io.oauth.loopback import Redirect
from ..actors.io.oauth.person import code_from
from ..actors.work.mcp.auth.access import folder
from ..actors.work.mcp.auth.sign_in import sign_in, sign_out
from ..actors.work.mcp.auth.store import Store
from ..actors.work.mcp.files import load_mcp
from ..protocol.errors import CallboardError, ConfigError, NobodyToAsk, UsageError
from ..protocol.mcp.config import Server
from ..supervisors import Actor
from .browser import has_browser, open_browser
from .frame import act, person_at_terminal
from .render.plain import choose
from .render.text import safe

PREFIX = "mcp:"


def sign_in_to(*, name: str, no_browser: bool, scopes: tuple[str, ...], no_input: bool, config_dir: str | None) -> int:
    """Has a person sign in; returns the exit code. The arguments are the flags of `callboard auth login`.

    Raises:
        UsageError: there is nothing of that name to sign in to.
        CallboardError: as `mcp.auth.sign_in`.
    """
    person_here = person_at_terminal(no_input=no_input)

    async def by_hand(me: Actor, root: Root) -> str:
        server = _server(root, name)

        async def person(request: Authorization, redirect: Redirect) -> str:
            opens = not no_browser and has_browser()
            if not person_here and not (opens or no_browser):
                raise NobodyToAsk(
                    f"a person has to sign in to MCP server '{server.name}', and there is neither a browser nor a"
                    " terminal here: run this command where there is one"
                )
            where = "A browser opens this page; if it does not, open it yourself" if opens else "Open this page"
            sys.stderr.write(f"{where}, to sign in to MCP server '{safe(server.name)}':\n\n{safe(request.url)}\n\n")
            sys.stderr.flush()
            if opens:
                open_browser(me, request.url)
            if not person_here:
                return await redirect.answer(request)
            text = f"Waiting for the browser at {redirect.uri}; if it runs elsewhere, paste where it ended:"
            return await code_from(me.ask_person, request, redirect, text)

        token = await sign_in(server, _store(server), os.environ, person, scopes=_spelled(scopes))
        return f"signed in to MCP server '{safe(server.name)}'{_for(token.scopes)}\n"

    progress = choose(sys.stderr, quiet=True, verbose=False, prompting=person_here, by_hand=True)
    sys.stdout.write(act(by_hand, config_dir=config_dir, progress=progress, person=person_here))
    return 0


def rows(names: tuple[str, ...], config_dir: str | None) -> list[dict[str, Any]]:
    """Of each server that may want people to sign in: whether one has, and for what. Without names, of all.

    Raises:
        UsageError: there is no server of such a name, or it is none that is signed in to.
        ConfigError: its entry lacks a value.
    """
    root = Root(config_dir=config_dir)
    wanted = [_server(root, name) for name in names] or [
        server for server in _entries(root) if server.sign_in is not None
    ]
    return [_row(server) for server in wanted]


def names_of_servers(config_dir: str | None) -> list[str]:
    """The servers that may be signed in to, to complete their names."""
    known = load_mcp(configured(config_dir, os.environ)[0]).servers
    return [f"{PREFIX}{server.name}" for server in known.values() if server.sign_in is not None]


def sign_out_of(name: str, config_dir: str | None) -> str:
    """Forgets a token.

    Raises:
        UsageError: there is nothing of that name.
        ConfigError: it can't be forgotten.
    """
    root = Root(config_dir=config_dir)
    server = _server(root, name)
    who = f"MCP server '{safe(server.name)}'"
    there, why = trio.run(partial(sign_out, _store(server), os.environ))
    if why:
        return f"signed out of {who}; its token could not be revoked: {safe(why)}\n"
    return f"signed out of {who}\n" if there else f"not signed in to {who}\n"


def _server(root: Root, name: str) -> Server:
    """The entry that a name means, with its values put in."""
    return root.mcp.leases.key(name.removeprefix(PREFIX)).server


def _entries(root: Root) -> list[Server]:
    """Those whose values are all there."""
    found = []
    for name in root.mcp.config.names:
        try:
            found.append(root.mcp.leases.key(name).server)
        except CallboardError as error:
            sys.stderr.write(f"warning: {safe(str(error))}\n")
    return found


def _store(server: Server) -> Store:
    if server.type == "stdio":
        raise UsageError(
            f"MCP server '{server.name}' is a program that is started here; its credentials stand in `env`"
        )
    return Store(folder(os.environ), server)


def _row(server: Server) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": f"{PREFIX}{server.name}",
        "type": "mcp",
        "signed_in": False,
        "expires": None,
        "seconds_left": None,
        "refreshes": False,
        "scopes": [],
        "wanted": [],
        "issuer": None,
        "error": None,
    }
    try:
        store = _store(server)
        login = store.read()
        token = None if login is None else store.token(login)
    except ConfigError as error:
        return row | {"error": str(error)}
    if login is None or token is None:
        return row
    return row | {
        "signed_in": True,
        "expires": None if token.expires is None else datetime.fromtimestamp(token.expires, UTC).isoformat(),
        "refreshes": bool(token.refresh_token),
        "scopes": list(token.scopes),
        "wanted": list(login.wanted),
        "issuer": login.server.issuer,
        "seconds_left": None if token.expires is None else token.left(time.time()),
    }


def _spelled(scopes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each for scope in scopes for each in scope.split())


def _for(scopes: tuple[str, ...]) -> str:
    return f" for {safe(' '.join(scopes))}" if scopes else ""
