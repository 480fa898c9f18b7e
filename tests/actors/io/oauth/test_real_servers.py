"""What servers of this world answer, as their own documentation shows it.

Google: https://developers.google.com/identity/protocols/oauth2/native-app and .../limited-input-device
GitHub: https://docs.github.com/en/apps/oauth-apps/building-oauth-apps/authorizing-oauth-apps (and of GitHub Apps)
Microsoft: https://learn.microsoft.com/en-us/entra/identity-platform/v2-oauth2-auth-code-flow, .../v2-oauth2-device-code
Auth0: https://auth0.com/docs/secure/tokens/refresh-tokens; Okta, Keycloak: RFC 6749 as it stands
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from support.auth_server import LocalAuthServer

from callboard.actors.io.oauth.endpoint import TokenEndpoint
from callboard.actors.io.oauth.token import Keepers, TokenFile
from callboard.protocol.errors import CallboardError, NobodyToAsk, OAuthRefused, SignInNeeded, UpstreamError
from callboard.supervisors import Root

from .conftest import signed_in

Json = dict[str, Any]


def answers(server: LocalAuthServer, path: str, *said: tuple[int, Json]) -> None:
    """The next answers at that path; the last one stays."""
    left = list(said)

    async def page(_request: object) -> tuple[int, Json]:
        return left.pop(0) if len(left) > 1 else left[0]

    server.pages[path] = page


@pytest.mark.parametrize(
    ("said", "lifetime", "refreshes", "scopes"),
    [
        pytest.param(
            {
                "access_token": "1/fFAGRNJru1FTz70BzhT3Zg",
                "expires_in": 3920,
                "token_type": "Bearer",
                "scope": "https://www.googleapis.com/auth/drive.metadata.readonly",
                "refresh_token": "1//xEoDL4iW3cxlI7yDbSRFYNG01kVKM2C-259HOF2aQbI",
            },
            3920.0,
            True,
            ("https://www.googleapis.com/auth/drive.metadata.readonly",),
            id="Google",
        ),
        pytest.param(
            {"access_token": "gho_16C7e42F292c6912E7710c838347Ae178B4a", "scope": "repo,gist", "token_type": "bearer"},
            None,
            False,
            ("repo,gist",),
            id="an OAuth app of GitHub",
        ),
        pytest.param(
            {
                "access_token": "ghu_16C7e42F292c6912E7710c838347Ae178B4a",
                "expires_in": 28800,
                "refresh_token": "ghr_1B4a2e77838347a7E420ce178F2E7c6912E169246c34E1ccbF66C46812d16D5B1A9Dc86A1498",
                "refresh_token_expires_in": 15811200,
                "scope": "",
                "token_type": "bearer",
            },
            28800.0,
            True,
            (),
            id="a GitHub app",
        ),
        pytest.param(
            {
                "access_token": "eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiIs",
                "token_type": "Bearer",
                "expires_in": 3599,
                "ext_expires_in": 3599,
                "scope": "https://graph.microsoft.com/mail.read",
                "refresh_token": "AwABAAAAvPM1KaPlrEqdFSBzjqfTGAMxZGUTdM0t4B4",
                "id_token": "eyJ0eXAiOiJKV1QiLCJhbGciOiJub25lIn0",
            },
            3599.0,
            True,
            ("https://graph.microsoft.com/mail.read",),
            id="Microsoft",
        ),
        pytest.param(
            {
                "access_token": "AwABAAAA",
                "token_type": "Bearer",
                "expires_in": "3600",
                "expires_on": "1388444763",
                "resource": "https://service.contoso.com/",
                "refresh_token": "AwABAAAAvPM1",
            },
            3600.0,
            True,
            ("chat", "profile"),
            id="Microsoft of old, with numbers as text",
        ),
    ],
)
async def test_tokens(
    server: LocalAuthServer,
    endpoint: TokenEndpoint,
    said: Json,
    lifetime: float | None,
    refreshes: bool,
    scopes: tuple[str, ...],
) -> None:
    answers(server, "/token", (200, said))
    token = await signed_in(server, endpoint)
    assert token.access_token == said["access_token"]
    assert (token.lifetime, bool(token.refresh_token), token.scopes) == (lifetime, refreshes, scopes)


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        pytest.param(
            400,
            {"error": "invalid_grant", "error_description": "Token has been expired or revoked."},
            SignInNeeded,
            id="Google",
        ),
        pytest.param(
            200,
            {
                "error": "bad_refresh_token",
                "error_description": "The refresh token passed is incorrect or expired.",
                "error_uri": "https://docs.github.com",
            },
            SignInNeeded,
            id="GitHub, with 200",
        ),
        pytest.param(
            403,
            {"error": "invalid_grant", "error_description": "Unknown or invalid refresh token."},
            SignInNeeded,
            id="Auth0, with 403",
        ),
        pytest.param(
            400,
            {
                "error": "invalid_grant",
                "error_description": "AADSTS700082: The refresh token has expired due to inactivity.\r\nTrace ID: 0000",
                "error_codes": [700082],
                "timestamp": "2026-01-01 00:00:00Z",
                "trace_id": "0000",
            },
            SignInNeeded,
            id="Microsoft",
        ),
        pytest.param(
            400,
            {"error": "invalid_grant", "error_description": "Session not active"},
            SignInNeeded,
            id="Keycloak",
        ),
        pytest.param(
            401,
            {"error": "invalid_client", "error_description": "The OAuth client was not found."},
            OAuthRefused,
            id="Google does not know the client",
        ),
        pytest.param(
            200,
            {"error": "incorrect_client_credentials", "error_description": "The client_id is incorrect."},
            OAuthRefused,
            id="GitHub does not know the client",
        ),
        pytest.param(500, {"error": "internal_failure"}, UpstreamError, id="Google fails"),
        pytest.param(
            400,
            {"error": "temporarily_unavailable", "error_description": "AADSTS90033: A transient error has occurred."},
            UpstreamError,
            id="Microsoft fails",
        ),
        pytest.param(
            429,
            {"error": "too_many_requests", "error_description": "Global limit has been reached"},
            UpstreamError,
            id="Auth0 has had enough",
        ),
    ],
)
async def test_refusals_of_a_refresh(
    root: Root,
    server: LocalAuthServer,
    endpoint: TokenEndpoint,
    file: TokenFile,
    status: int,
    said: Json,
    kind: type[CallboardError],
) -> None:
    token = await signed_in(server, endpoint, file)
    answers(server, "/token", (status, said))
    keeper = Keepers(root).keeper(endpoint, file, who="x", remedy="y")
    with pytest.raises(kind) as error:
        await keeper.other_than(await keeper.token())
    assert type(error.value) is kind
    assert str(error.value).isprintable()
    assert token.refresh_token not in str(error.value)


PENDING_AT_GOOGLE = (428, {"error": "authorization_pending", "error_description": "Precondition Required"})
PENDING_AT_GITHUB = (200, {"error": "authorization_pending", "error_description": "The authorization is pending."})
PENDING_AT_MICROSOFT = (400, {"error": "authorization_pending", "error_description": "AADSTS70016: OAuth 2.0 device"})
TOKEN = (200, {"access_token": "t", "token_type": "Bearer", "expires_in": 3600})
OF_GOOGLE = {
    "device_code": "4/4-GMMhmHCXhWEzkobqIHGG_EnNYYsAkukHspeYUk9E8",
    "user_code": "GQVQ-JKEC",
    "verification_url": "https://www.google.com/device",
    "expires_in": 1800,
    "interval": 0.01,
}
OF_GITHUB = {
    "device_code": "3584d83530557fdd1f46af8289938c8ef79f9dc5",
    "user_code": "WDJB-MJHT",
    "verification_uri": "https://github.com/login/device",
    "expires_in": 900,
    "interval": 0.01,
}


@pytest.mark.parametrize(
    ("begins", "says", "end"),
    [
        pytest.param(OF_GOOGLE, (PENDING_AT_GOOGLE, TOKEN), None, id="Google"),
        pytest.param(OF_GITHUB, (PENDING_AT_GITHUB, TOKEN), None, id="GitHub"),
        pytest.param(OF_GITHUB, (PENDING_AT_MICROSOFT, TOKEN), None, id="Microsoft"),
        pytest.param(OF_GOOGLE, ((403, {"error": "access_denied"}),), OAuthRefused, id="a no at Google"),
        pytest.param(OF_GITHUB, ((200, {"error": "expired_token"}),), NobodyToAsk, id="too late at GitHub"),
        pytest.param(OF_GITHUB, ((400, {"error": "authorization_declined"}),), OAuthRefused, id="a no at Microsoft"),
    ],
)
async def test_other_devices(
    server: LocalAuthServer,
    endpoint: TokenEndpoint,
    begins: Json,
    says: tuple[tuple[int, Json], ...],
    end: type[CallboardError] | None,
) -> None:
    answers(server, "/device", (200, begins))
    answers(server, "/token", *says)
    grant = await endpoint.device()
    assert grant.verification_uri.startswith("https://")
    with trio.fail_after(60):
        if end is None:
            assert (await endpoint.device_token(grant)).access_token == "t"
        else:
            with pytest.raises(end):
                await endpoint.device_token(grant)
