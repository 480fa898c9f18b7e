"""Sign-in by OAuth for `callboard auth`: clients of config.yaml with `auth: oauth`, then MCP servers of mcp.json."""

from __future__ import annotations

import os
import sys
import time
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from ...actors.io.directories import config_dir as configured
from ...actors.io.oauth.authorization import (
    Authorization,
    Redirect,
    authorization,
    code_from,
    is_on_loopback,
    listening,
)
from ...actors.io.oauth.endpoint import AuthHttp, TokenEndpoint
from ...actors.io.settings import load_settings
from ...actors.runs.root import Root
from ...actors.work.mcp.auth.access import LoginStore, folder
from ...actors.work.mcp.auth.sign_in import sign_in, sign_out
from ...actors.work.mcp.files import load_mcp
from ...actors.work.models.providers import filled, signs_in
from ...actors.work.models.signed_in import auth_server_of, client_to_sign_in, remedy_of, token_file_of
from ...protocol.errors import CallboardError, ConfigError, NobodyToAsk, OAuthRefused, UpstreamError, UsageError
from ...protocol.mcp.config import Server
from ...protocol.relative_time import age
from ...supervisors import Actor
from ..desktop import has_browser, open_browser
from ..frame import act, choose_display, person_at_terminal
from ..render.text import columns, safe
from ..vault_passphrase import vault_of

if TYPE_CHECKING:
    from ...actors.io.oauth.token import OAuthToken
    from ...protocol.settings import ClientSettings, Settings

PREFIX = "mcp:"


def sign_in_to_client(
    *, name: str | None, no_browser: bool, device: bool, scopes: tuple[str, ...], no_input: bool, config_dir: str | None
) -> int:
    """Sign in to a client in a browser or on another device, store its token, and return 0.

    The arguments are the flags of `callboard auth login`; `name` None means the only client with a sign-in.

    Raises:
        UsageError: there is no client of that name, or `name` is None and not exactly one client has a sign-in.
        ConfigError: the client does not use a sign-in, or its entry is incomplete.
        OAuthRefused: the user or the authorization server refused.
        NobodyToAsk: there is no terminal, or the sign-in timed out.
        UpstreamError: the authorization server can't be reached.
    """
    settings = _settings(config_dir)
    client = _whole(client_to_sign_in(name, settings), settings, config_dir)
    signing_in = _SigningIn(client, settings.file, scopes, person_at_terminal(no_input=no_input))

    async def by_hand(me: Actor, _root: Root) -> str:
        by_device = device or not signing_in.server.authorization_url
        token = await (
            signing_in.on_another_device(asked=device)
            if by_device
            else signing_in.in_browser(me, no_browser=no_browser)
        )
        await token_file_of(client.name, os.environ).put(token, signing_in.server)
        return f"signed in to {signing_in.who}{_for(token.scopes)}\n"

    progress = choose_display(sys.stderr, quiet=True, verbose=False, prompting=signing_in.person, by_hand=True)
    sys.stdout.write(act(by_hand, config_dir=config_dir, progress=progress, person=signing_in.person))
    return 0


class _SigningIn:
    """Sign-in to one client: in a browser here, or on another device by a code."""

    def __init__(self, client: ClientSettings, file: str, scopes: tuple[str, ...], person: bool) -> None:
        import msgspec

        server = auth_server_of(client, file)
        # A value may hold several scopes, separated by blanks as in the parameter `scope` (RFC 6749, section 3.3).
        more = (each for text in scopes for each in text.split())
        self.server = msgspec.structs.replace(server, scopes=tuple(dict.fromkeys((*server.scopes, *more))))
        self.who = f"client '{safe(client.name)}'"
        self.person = person
        self._endpoint = TokenEndpoint(self.server, AuthHttp(os.environ, client.extra.proxy))

    async def in_browser(self, me: Actor, *, no_browser: bool) -> OAuthToken:
        """Sign in through a browser on this machine."""
        server = self.server
        # Any other redirect is a page of the provider that shows the code, which the user pastes here.
        comes_back = is_on_loopback(server.redirect_uri)
        async with listening(server.redirect_uri) if comes_back else nullcontext() as redirect:
            request = authorization(server, server.redirect_uri if redirect is None else redirect.uri)
            opened = not no_browser and has_browser()
            # Without a terminal nothing can be pasted, so the redirect has to arrive here. --no-browser is accepted
            # without a terminal: the caller opens the printed address by other means.
            if not self.person and (redirect is None or not (opened or no_browser)):
                raise NobodyToAsk(
                    f"signing in to {self.who} needs a browser or a terminal, and there is neither: run this "
                    "command where there is one"
                )
            where = "The browser should open a page; if it does not, open" if opened else "Open"
            _print_line(f"{where} this address to sign in to {self.who}:\n\n{request.url}\n\n")
            if opened:
                open_browser(me, request.url)
            if redirect is not None and not self.person:
                # No terminal: only the redirect can bring the code.
                code = await redirect.answer(request)
            else:
                text = "Paste the code that the page shows, or the address that the browser shows after the sign-in:"
                if redirect is not None:
                    text = (
                        f"Waiting for the browser at {redirect.uri}. If the browser is on another machine, paste the"
                        " address that it shows after the sign-in:"
                    )
                code = await code_from(me.ask_person, request, redirect, text)
            return await self._endpoint.exchange(request, code)

    async def on_another_device(self, *, asked: bool) -> OAuthToken:
        """Sign in on another device. `asked`: the flags request it."""
        if not self.person and not asked:
            raise NobodyToAsk(
                f"signing in to {self.who} needs a terminal, and there is none; to sign in on another device: --device"
            )
        grant = await self._endpoint.device()
        page = grant.complete_uri or grant.verification_uri
        _print_line(
            f"Open this address on any device to sign in to {self.who}:\n\n{page}\n\nThe code is {grant.user_code}; "
            f"it expires in {age(grant.lifetime)}.\n"
        )
        return await self._endpoint.device_token(grant)


def client_rows(names: tuple[str, ...], config_dir: str | None) -> list[dict[str, Any]]:
    """Return a row for each client with `auth: oauth`, or for the named ones: sign-in state and lifetime.

    The row of an incomplete entry or an unreadable token has the reason as `error`.

    Raises:
        UsageError: there is no client of such a name.
        ConfigError: the client does not use a sign-in.
    """
    settings = _settings(config_dir)
    wanted = [client_to_sign_in(name, settings) for name in names] or [
        each for each in settings.clients if signs_in(each)
    ]
    return [_client_row(client, settings, config_dir) for client in wanted]


def in_words(row: dict[str, Any]) -> str:
    """Return the state of a sign-in as `callboard auth status` prints it."""
    if row["error"]:
        return str(row["error"])
    sign_in = remedy_of(row["name"])
    if not row["signed_in"]:
        return f"not signed in; {sign_in}"
    if row.get("wanted"):
        return f"signed in, but not for all requested scopes ({' '.join(row['wanted'])}); {sign_in}"
    if row["refreshes"] or row["seconds_left"] is None:
        return "signed in"
    return f"signed in for {age(row['seconds_left'])}" if row["seconds_left"] > 0 else f"expired; {sign_in}"


def as_table(found: list[dict[str, Any]]) -> str:
    """Return the rows of clients or servers as an aligned table."""
    told = [[row["name"], in_words(row), " ".join(row["scopes"]), row["issuer"] or ""] for row in found]
    return "".join(f"{safe(line).rstrip()}\n" for line in columns(told))


def sign_out_of_client(name: str, config_dir: str | None) -> str:
    """Remove the token of a client, and revoke it at the authorization server; return a message for the user.

    A failed revocation is only part of the message: the token is removed anyway.

    Raises:
        UsageError: there is neither a client of that name nor a token for one.
        ConfigError: the token can't be removed.
    """
    settings, file = _settings(config_dir), token_file_of(name, os.environ)
    client = next((each for each in settings.clients if each.name == name), None)
    # A client that is no longer in config.yaml may still have a token. `exists` is False for a broken link, which can
    # be removed too.
    if (client is None or not signs_in(client)) and not file.path.is_symlink() and not file.path.exists():
        client_to_sign_in(name, settings)
    who = f"client '{safe(name)}'"
    if client is not None and signs_in(client):
        with suppress(ConfigError):  # the token can be removed even if the entry is incomplete
            client = _whole(client, settings, config_dir)

    async def forget() -> str:
        token, endpoint = None, None
        # Otherwise another process that is refreshing the token could write it again after the removal.
        async with file.locked():
            try:
                if client is not None and signs_in(client):
                    server = auth_server_of(client, settings.file)
                    token = await trio.to_thread.run_sync(file.read, server)
                    endpoint = TokenEndpoint(server, AuthHttp(os.environ, client.extra.proxy))
            except ConfigError:
                pass  # the token can be removed even if the file is unreadable or the entry broken
            there = await trio.to_thread.run_sync(file.remove)
        try:
            # After the removal: a server that does not answer must not keep the user signed in.
            if endpoint is not None and token is not None:
                await endpoint.revoke(token)
        except (OAuthRefused, UpstreamError, ConfigError) as error:
            return f"signed out of {who}; its token could not be revoked: {safe(str(error))}\n"
        return f"signed out of {who}\n" if there else f"not signed in to {who}\n"

    return trio.run(forget)


def names_of_clients(config_dir: str | None) -> list[str]:
    """Names of clients with `auth: oauth`, for completion; empty if config.yaml can't be read."""
    try:
        return [client.name for client in _settings(config_dir).clients if signs_in(client)]
    except CallboardError:
        return []  # the command itself reports the error


def _settings(config_dir: str | None) -> Settings:
    return load_settings(configured(config_dir, os.environ)[0])[0]


def _whole(client: ClientSettings, settings: Settings, config_dir: str | None) -> ClientSettings:
    """Return the client with the secrets of the vault put into its entry."""
    return filled(client, vault_of(config_dir), settings.file)


def _client_row(client: ClientSettings, settings: Settings, config_dir: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": client.name,
        "type": client.type,
        "signed_in": False,
        "expires": None,
        "seconds_left": None,
        "refreshes": False,
        "scopes": [],
        "issuer": None,
        "error": None,
    }
    try:
        server = auth_server_of(_whole(client, settings, config_dir), settings.file)
        token = token_file_of(client.name, os.environ).read(server)
    except ConfigError as error:
        return row | {"error": str(error)}
    row["issuer"] = server.issuer or server.token_url
    if token is None:
        return row
    return row | {
        "signed_in": True,
        "expires": None if token.expires is None else datetime.fromtimestamp(token.expires, UTC).isoformat(),
        "seconds_left": None if token.lifetime is None else token.remaining(time.time()),
        "refreshes": bool(token.refresh_token),
        "scopes": list(token.scopes),
    }


def _for(scopes: tuple[str, ...]) -> str:
    return f" for {safe(' '.join(scopes))}" if scopes else ""


def _print_line(text: str) -> None:
    sys.stderr.write(safe(text))
    sys.stderr.flush()


def sign_in_to_server(
    *, name: str, no_browser: bool, scopes: tuple[str, ...], no_input: bool, config_dir: str | None
) -> int:
    """Sign in to an MCP server, store its token, and return 0. The arguments are the flags of `callboard auth login`.

    Raises:
        UsageError: there is no server of that name with a sign-in.
        CallboardError: as `mcp.auth.sign_in`.
    """
    person_here = person_at_terminal(no_input=no_input)

    async def by_hand(me: Actor, root: Root) -> str:
        server = _server(root, name)

        async def person(request: Authorization, redirect: Redirect) -> str:
            opens = not no_browser and has_browser()
            if not person_here and not (opens or no_browser):
                raise NobodyToAsk(
                    f"signing in to MCP server '{server.name}' needs a browser or a terminal, and there is neither: run"
                    " this command where there is one"
                )
            where = "A browser opens this page; if it does not, open it yourself" if opens else "Open this page"
            sys.stderr.write(f"{where}, to sign in to MCP server '{safe(server.name)}':\n\n{safe(request.url)}\n\n")
            sys.stderr.flush()
            if opens:
                open_browser(me, request.url)
            if not person_here:
                return await redirect.answer(request)
            text = (
                f"Waiting for the browser at {redirect.uri}. If the browser is on another machine, paste the address"
                " that it shows after the sign-in:"
            )
            return await code_from(me.ask_person, request, redirect, text)

        token = await sign_in(server, _store(server), os.environ, person, scopes=_spelled(scopes))
        return f"signed in to MCP server '{safe(server.name)}'{_for(token.scopes)}\n"

    progress = choose_display(sys.stderr, quiet=True, verbose=False, prompting=person_here, by_hand=True)
    sys.stdout.write(act(by_hand, config_dir=config_dir, progress=progress, person=person_here))
    return 0


def server_rows(names: tuple[str, ...], config_dir: str | None) -> list[dict[str, Any]]:
    """Return a row for each server with a sign-in, or for the named ones: state and scopes.

    Without names, a server whose entry lacks a value is left out, with a warning on stderr.

    Raises:
        UsageError: there is no server of such a name, or it has no sign-in.
        ConfigError: the entry of a named server lacks a value.
    """
    root = Root(config_dir=config_dir)
    wanted = [_server(root, name) for name in names] or [
        server for server in _entries(root) if server.sign_in is not None
    ]
    return [_server_row(server) for server in wanted]


def names_of_servers(config_dir: str | None) -> list[str]:
    """Names of servers with a sign-in, as `mcp:NAME`, for completion."""
    known = load_mcp(configured(config_dir, os.environ)[0]).servers
    return [f"{PREFIX}{server.name}" for server in known.values() if server.sign_in is not None]


def sign_out_of_server(name: str, config_dir: str | None) -> str:
    """Remove the token of a server, and revoke it; return a message for the user, with the error of a revocation.

    Raises:
        UsageError: there is no server of that name, or it has no sign-in.
        ConfigError: the token can't be removed.
    """
    root = Root(config_dir=config_dir)
    server = _server(root, name)
    who = f"MCP server '{safe(server.name)}'"
    there, why = trio.run(partial(sign_out, _store(server), os.environ))
    if why:
        return f"signed out of {who}; its token could not be revoked: {safe(why)}\n"
    return f"signed out of {who}\n" if there else f"not signed in to {who}\n"


def _server(root: Root, name: str) -> Server:
    """Return the entry of a server with its variables and secrets put in."""
    return root.mcp.leases.key(name.removeprefix(PREFIX)).server


def _entries(root: Root) -> list[Server]:
    """Return the entries whose variables and secrets are all set; a warning on stderr names each of the others."""
    found = []
    for name in root.mcp.config.names:
        try:
            found.append(root.mcp.leases.key(name).server)
        except CallboardError as error:
            sys.stderr.write(f"warning: {safe(str(error))}\n")
    return found


def _store(server: Server) -> LoginStore:
    # MCP's authorization is for HTTP; a stdio server gets its credentials from the environment (specification,
    # Authorization).
    if server.type == "stdio":
        raise UsageError(
            f"MCP server '{server.name}' has no sign-in: Callboard starts it as a program. Set its credentials in"
            " `env` of its entry"
        )
    return LoginStore(folder(os.environ), server)


def _server_row(server: Server) -> dict[str, Any]:
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
        "seconds_left": None if token.expires is None else token.remaining(time.time()),
    }


def _spelled(scopes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each for scope in scopes for each in scope.split())
