"""`.authenticate`: OAuth sign-in to a provider client of config.yaml."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from .....protocol.errors import NobodyToAsk
from .....protocol.kernel.questions import Answer, Question
from .....protocol.settings import ClientSettings
from ....io.oauth.authorization import authorization
from ....io.oauth.endpoint import TokenEndpoint
from ....io.oauth.http import AuthHttp
from ....io.oauth.loopback import code_from, listening
from ....io.oauth.server import is_on_loopback
from ....io.oauth.token import OAuthToken
from ....work.models.providers import signs_in
from ....work.models.secret_interpolation import filled
from ....work.models.signed_in import auth_server_of, client_to_sign_in, token_file_of
from ..line import ChatLine
from ..table import command

if TYPE_CHECKING:
    from .....protocol.control.caller import Caller
    from ..chat import Chat


def _clients(chat: Chat, _caller: Caller, words: Sequence[str]) -> list[tuple[str, str]]:
    clients = chat.hub.root.settings.clients if len(words) == 1 else ()
    return [(each.name, each.type) for each in clients if signs_in(each)]


@command(
    ".authenticate",
    "Sign in to a provider of models",
    usage="[client]",
    scopes=("run:files",),
    in_macros=False,
    completes=_clients,
)
async def _authenticate(line: ChatLine) -> None:
    settings = line.root.settings
    client = client_to_sign_in(line.rest or None, settings)
    client = await line.root.vault.ready(lambda: filled(client, line.root.vault, settings.file))
    server = auth_server_of(client, settings.file)
    endpoint = TokenEndpoint(server, AuthHttp(os.environ, client.extra.proxy))
    if server.authorization_url:
        token = await _by_browser(line, client, endpoint)
    else:
        # Without an authorization URL, only the device flow (RFC 8628) is possible.
        grant = await endpoint.device()
        page = grant.complete_uri or grant.verification_uri
        text = f"Open this address on any device to sign in to client '{client.name}':\n\n{page}\n\n"
        await line.say(f"{text}The code is {grant.user_code}")
        token = await endpoint.device_token(grant)
    await token_file_of(client.name, os.environ).put(token, server)
    await line.note(f"signed in to client '{client.name}'")


async def _by_browser(line: ChatLine, client: ClientSettings, endpoint: TokenEndpoint) -> OAuthToken:
    server = endpoint.server

    async def ask(question: Question) -> Answer:
        text = f"{question.text} {question.problem or ''}".rstrip()
        said = await line.ask(text, secret=True)
        if said is None:
            raise NobodyToAsk("no code was given")
        return Answer(question=question.id, value=said)

    # A loopback redirect receives the code itself; for any other address, the user pastes it.
    async with listening(server.redirect_uri) if is_on_loopback(server.redirect_uri) else nullcontext() as redirect:
        request = authorization(server, server.redirect_uri if redirect is None else redirect.uri)
        await line.say(f"Open this address to sign in to client '{client.name}':\n\n{request.url}")
        text = "Paste the code that the page shows, or the address that it ends at:"
        if redirect is not None:
            text = f"Waiting for the browser at {redirect.uri}; if it runs elsewhere, paste where it ended:"
        return await endpoint.exchange(request, await code_from(ask, request, redirect, text))
