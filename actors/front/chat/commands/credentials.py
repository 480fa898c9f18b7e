"""`.authenticate` and `.vault`: OAuth sign-in to a provider client of config.yaml, and secrets of the local user.

Watchers never see the output of `.vault`, including the names of secrets.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import trio

from .....protocol.control.caller import LOCAL, Caller
from .....protocol.environment import is_secret_name
from .....protocol.errors import ConfigError, Denied, NobodyToAsk, NotFound, UsageError
from .....protocol.kernel.questions import Answer, Question
from .....protocol.problems import did_you_mean
from .....protocol.settings import ClientSettings
from ....io.imports import imported
from ....io.oauth.authorization import authorization, code_from, is_on_loopback, listening
from ....io.oauth.endpoint import AuthHttp, TokenEndpoint
from ....io.oauth.token import OAuthToken
from ....io.secret_redaction import handed_out, without_secrets
from ....io.vault.age import require_age
from ....io.vault.file import VaultFile, unusable
from ....io.vault.keys import Passphrase
from ....work.models.providers import filled, signs_in
from ....work.models.signed_in import auth_server_of, client_to_sign_in, token_file_of
from ..command_line import ChatLine, command

if TYPE_CHECKING:
    from .....protocol.control.caller import Caller
    from ..chat import Chat


def _clients(chat: Chat, _caller: Caller, words: Sequence[str]) -> list[tuple[str, str]]:
    clients = chat.hub.root.settings.clients if len(words) == 1 else ()
    return [(each.name, each.type) for each in clients if signs_in(each)]


@command(
    ".authenticate",
    "Sign in to a model provider (a client with auth: oauth)",
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
    await line.note(f"signed in to client '{client.name}'; its models can be used now: .model {client.name}:MODEL")


async def _by_browser(line: ChatLine, client: ClientSettings, endpoint: TokenEndpoint) -> OAuthToken:
    server = endpoint.server

    async def ask(question: Question) -> Answer:
        text = f"{question.text} {question.problem or ''}".rstrip()
        said = await line.ask(text, secret=True)
        if said is None:
            raise NobodyToAsk("no code was entered")
        return Answer(question=question.id, value=said)

    # A loopback redirect receives the code itself; for any other address, the user pastes it.
    async with listening(server.redirect_uri) if is_on_loopback(server.redirect_uri) else nullcontext() as redirect:
        request = authorization(server, server.redirect_uri if redirect is None else redirect.uri)
        await line.say(f"Open this address to sign in to client '{client.name}':\n\n{request.url}")
        text = "Paste the code that the page shows, or the address of the last page:"
        if redirect is not None:
            text = (
                f"Waiting for the browser at {redirect.uri}; if it runs on another machine, paste the address of "
                "its last page:"
            )
        return await endpoint.exchange(request, await code_from(ask, request, redirect, text))


_ACTIONS = {
    "add": "store a new secret",
    "get": "show the value of a secret",
    "update": "change the value of a secret",
    "delete": "remove a secret",
    "list": "list the names of all secrets, without values",
}


def _completed(chat: Chat, caller: Caller, words: Sequence[str]) -> list[tuple[str, str]]:
    if len(words) == 1:
        return list(_ACTIONS.items())
    vault = chat.hub.root.vault
    # Completion runs on each key: offer names only if the vault opens at once, without a command or a passphrase.
    hidden = caller.subject != LOCAL.subject or vault.file is None or not vault.is_quick
    if hidden or len(words) > 2 or words[0] in ("add", "list"):
        return []
    assert vault.file is not None
    return [(name, "") for name in sorted(vault.file.read())]


@command(
    ".vault",
    "Store, show or delete secrets in the encrypted vault",
    usage="<add|get|update|delete|list> [name]",
    in_macros=False,
    completes=_completed,
)
async def _vault(line: ChatLine) -> None:
    if line.caller.subject != LOCAL.subject:
        raise Denied(
            "only the local user may use the vault, not a caller with an API key: use .vault in a chat on the server"
        )
    action, _, name = line.rest.partition(" ")
    name = name.strip()
    if action not in _ACTIONS or bool(name) == (action == "list"):
        raise line.misused()
    if name and not is_secret_name(name):
        wanted = "use letters, digits, _ and -, and begin with a letter or _"
        raise UsageError(f"'{name[:60]}' can't be the name of a secret: {wanted}")
    file = line.root.vault.file
    # An external secret program can only be read.
    if file is None and action == "get":
        await line.say_privately(await line.root.vault.ready(lambda: line.root.vault.get(name) or ""))
        return
    if file is None:
        raise UsageError(
            f"'.vault {action}' is not possible: another program manages the secrets (`vault.command` of config.yaml); "
            "list and change them with that program"
        )
    secrets = await _opened(line, file)
    if action == "list":
        await line.say_privately(
            "\n".join(sorted(secrets)) if secrets else "The vault has no secrets yet; add one with .vault add NAME"
        )
        return
    if action == "add" and name in secrets:
        raise UsageError(f"the secret '{name}' exists already; change it with .vault update {name}")
    if action != "add" and name not in secrets:
        hint = did_you_mean(name, secrets) or "list the names with .vault list"
        raise NotFound(f"there is no secret '{name}'; {hint}")
    if action == "get":
        await line.say_privately(secrets[name])
    elif action == "delete":
        await _delete(line, file, name)
    else:
        await _put(line, file, name, new=action == "add")


async def _opened(line: ChatLine, file: VaultFile) -> dict[str, str]:
    """Return the secrets by name. Ask the user for the passphrase if the vault needs one that is not known.

    Raises:
        UsageError: the vault needs a passphrase and has none yet.
        ConfigError: the file can't be read, or the passphrase is wrong.
    """
    opener = file.opener
    if isinstance(opener, Passphrase) and opener.is_wanted:
        if file.stamp is None:
            raise UsageError(
                "the vault has no passphrase yet; choose one by adding the first secret in a terminal: callboard "
                "vault add NAME"
            )
        opener.set_passphrase(await line.ask(f"Passphrase of the vault {file.path}", secret=True) or "")
    await imported("pyrage")
    try:
        return await trio.to_thread.run_sync(file.read)
    except ConfigError:
        if isinstance(opener, Passphrase):
            opener.set_passphrase(None)  # forget a wrong passphrase, so that the next call asks again
        raise


async def _put(line: ChatLine, file: VaultFile, name: str, *, new: bool) -> None:
    require_age()
    value = await line.ask(f"Value of {name} (hidden)", secret=True)
    if value is None or not value.strip():
        raise UsageError("no value was entered, so nothing was changed")
    if why := unusable(value):
        raise UsageError(f"the value of {name} {why}; nothing was saved")
    handed_out(value, name=name)
    line.root.kernel.bus.rewrite = without_secrets  # from now on, redact the new value in all events

    def edit(secrets: dict[str, str]) -> None:
        # Checked again under the file's lock: another program may have changed the vault since `_opened`.
        if new == (name in secrets):
            raise ConfigError(
                f"another program changed '{name}' in the meantime, so nothing was saved; list the present "
                "names with .vault list"
            )
        secrets[name] = value

    await trio.to_thread.run_sync(file.change, edit)
    done = "stored" if new else "changed"
    use = f"config.yaml and mcp.json can use it as {{{{{name}}}}}"
    await line.say_privately(f"{name} is {done} in {file.path}; {use}", "note")


async def _delete(line: ChatLine, file: VaultFile, name: str) -> None:
    if not await line.confirm(f"Delete the secret '{name}' permanently?"):
        await line.say_privately("nothing was deleted", "note")
        return
    await trio.to_thread.run_sync(file.change, lambda secrets: secrets.pop(name, None))
    await line.say_privately(f"{name} is deleted from {file.path}", "note")
