"""Models for vectors of clients that people sign in for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from support.auth_server import CLIENT, LocalAuthServer, auth_server
from support.fake_models import FakeModels, Reply, Request
from support.messages import says

from callboard.actors.io.oauth.authorization import authorization
from callboard.actors.io.oauth.endpoint import AuthHttp, TokenEndpoint
from callboard.actors.work.knowledge.embed.embedders import Embedders
from callboard.actors.work.models.signed_in import auth_server_of, token_file_of
from callboard.protocol.errors import SignInNeeded
from callboard.protocol.settings import ClientSettings, Settings
from callboard.protocol.settings.model import OAuthSettings
from callboard.supervisors import Root

VECTORS = b'{"embeddings": [{"values": [0.0, 1.0]}]}'


@pytest.fixture
async def server(nursery: trio.Nursery) -> LocalAuthServer:
    return await auth_server(nursery)


async def test_they_are_asked_with_the_token_and_a_refused_one_is_renewed(
    server: LocalAuthServer, fake_model: FakeModels, tmp_path: Path, event_collector: Any
) -> None:
    def guarded(request: Request) -> Reply:
        good = server.is_good(request.headers["authorization"].removeprefix("Bearer "))
        return Reply(raw=VECTORS) if good else Reply(status=401, error="expired")

    fake_model.answer_with(guarded)
    oauth = OAuthSettings(
        client_id=CLIENT, authorization_url=f"{server.url}/authorize", token_url=f"{server.url}/token"
    )
    client = ClientSettings(type="gemini", name="g", api_base=fake_model.url, auth="oauth", oauth=oauth)
    environ = {"XDG_STATE_HOME": str(tmp_path / "state"), "GEMINI_API_KEY": "sk-test-of-the-environment"}
    async with Root() as root:
        embedders = Embedders(Settings(clients=(client,)), environ, owner=root)
        with pytest.raises(SignInNeeded, match=says("work.models.signed_in.remedy_of", client="g")):
            embedders.of("g:gemini-embedding-001")
        auth = auth_server_of(client, "config.yaml")
        request = authorization(auth, auth.redirect_uri)
        token = await TokenEndpoint(auth, AuthHttp({})).exchange(request, server.approve(request.url))
        await token_file_of("g", environ).put(token, auth)
        embedder = embedders.of("g:gemini-embedding-001")
        assert (await embedder.embed(event_collector, ["a"])).tolist() == [[0.0, 1.0]]
        server.expire_all()
        assert (await embedder.embed(event_collector, ["b"])).tolist() == [[0.0, 1.0]]
        server.revoke_all()
        with pytest.raises(SignInNeeded):
            await embedder.embed(event_collector, ["c"])
        await embedders.aclose()
    assert server.refreshes == 1
    assert not [request for request in fake_model.requests if "x-goog-api-key" in request.headers]
