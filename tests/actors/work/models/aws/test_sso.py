"""Profiles of people who sign in with `aws sso login`: whose token it is, what it is exchanged for, when it ends."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from support.fake_models import FakeModels, Reply, Request
from support.messages import says

from callboard.actors.work.models.aws.credential_chain import ProfileRole, RoleSigner, signer_of
from callboard.actors.work.models.aws.keys import AwsKeys
from callboard.protocol.errors import ConfigError, CredentialsError, UpstreamError
from callboard.protocol.settings import ClientSettings

NOON = 1_800_000_000.0
"""2027-01-15T08:00:00Z."""

START = "https://my-company.awsapps.com/start"
CONFIG = f"""
[profile work]
sso_session = my-company
sso_account_id = 123456789012
sso_role_name = Agents

[sso-session my-company]
sso_region = eu-central-1
sso_start_url = {START}
"""
OLD = f"""
[profile work]
sso_start_url = {START}
sso_region = eu-central-1
sso_account_id = 123456789012
sso_role_name = Agents
"""
GRANTED = {
    "roleCredentials": {
        "accessKeyId": "ASIA",
        "secretAccessKey": "s",
        "sessionToken": "t",
        "expiration": int((NOON + 3600) * 1000),
    }
}
"""What `GetRoleCredentials` answers, as its API reference has it."""

Home = Callable[..., dict[str, str]]


@pytest.fixture
def home(tmp_path: Path, fake_model: FakeModels) -> Home:
    """Writes ~/.aws/config, and the token of a sign-in; gives the environment, whose SSO is the test's server."""

    def write(config: str, key: str = "my-company", **token: Any) -> dict[str, str]:
        file = cache(tmp_path, key)
        file.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / ".aws" / "config").write_text(config)
        if token:
            file.write_text(json.dumps({"startUrl": START, "region": "eu-central-1", **token}))
        services = {f"AWS_ENDPOINT_URL_{name}": fake_model.url for name in ("SSO", "SSO_OIDC", "STS")}
        return {"HOME": str(tmp_path), **services}

    return write


def cache(home: Path, key: str = "my-company") -> Path:
    return home / ".aws" / "sso" / "cache" / f"{hashlib.sha1(key.encode()).hexdigest()}.json"


def of(environ: dict[str, str], name: str = "work", clock: Callable[[], float] = lambda: NOON) -> ProfileRole:
    return ProfileRole(name, environ, "eu-north-1", None, clock)


GOOD = {"accessToken": "signed-in", "expiresAt": "2027-01-15T16:00:00Z"}
RENEWABLE = {
    "accessToken": "old",
    "expiresAt": "2027-01-15T08:01:00Z",
    "refreshToken": "r1",
    "clientId": "c",
    "clientSecret": "cs",
    "registrationExpiresAt": "2027-03-01T00:00:00Z",
}


def answers(renewal: Reply) -> Callable[[Request], Reply]:
    """Keys for a token, and this for one that is to be renewed."""
    return lambda request: renewal if request.path == "/token" else Reply(raw=json.dumps(GRANTED).encode())


NEWER = Reply(raw=json.dumps({"accessToken": "new", "expiresIn": 3600, "refreshToken": "r2"}).encode())
REFUSED = Reply(status=400, raw=b'{"error": "invalid_grant"}')


@pytest.mark.parametrize(("config", "key"), [(CONFIG, "my-company"), (OLD, START)], ids=["a session", "a start URL"])
@pytest.mark.parametrize("ends", ["2027-01-15T16:00:00Z", "2027-01-15T16:00:00UTC"])
async def test_the_token_of_a_sign_in_is_exchanged_for_keys_of_the_role(
    config: str, key: str, ends: str, home: Home, fake_model: FakeModels
) -> None:
    fake_model.answer_with(answers(NEWER))
    role = of(home(config, key, accessToken="signed-in", expiresAt=ends))
    await role.renew()
    await role.renew()
    assert role.keys() == AwsKeys("ASIA", "s", "t")
    (request,) = fake_model.requests
    assert (request.method, request.path) == (
        "GET",
        "/federation/credentials?role_name=Agents&account_id=123456789012",
    )
    assert request.headers["x-amz-sso_bearer_token"] == "signed-in"


async def test_keys_are_asked_for_again_before_they_end(home: Home, fake_model: FakeModels) -> None:
    fake_model.answer_with(answers(NEWER))
    clock = [NOON]
    role = of(home(CONFIG, **GOOD), clock=lambda: clock[0])
    for clock[0] in (NOON, NOON + 1800, NOON + 3599):
        await role.renew()
    assert len(fake_model.requests) == 2


async def test_a_sign_in_that_ends_soon_is_renewed_and_kept_for_awss_own_tools(
    home: Home, fake_model: FakeModels, tmp_path: Path
) -> None:
    fake_model.answer_with(answers(NEWER))
    await of(home(CONFIG, **RENEWABLE)).renew()
    renewal, keys = fake_model.requests
    assert renewal.json == {"clientId": "c", "clientSecret": "cs", "grantType": "refresh_token", "refreshToken": "r1"}
    assert keys.headers["x-amz-sso_bearer_token"] == "new"
    kept = json.loads(cache(tmp_path).read_text())
    changed = {"accessToken": "new", "expiresAt": "2027-01-15T09:00:00Z", "refreshToken": "r2"}
    assert kept == {"startUrl": START, "region": "eu-central-1", **RENEWABLE, **changed}
    assert cache(tmp_path).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("renewal", [REFUSED, Reply(status=503, error="busy"), Reply(raw=b"<html>")])
async def test_a_sign_in_that_can_not_be_renewed_is_used_to_its_end(
    renewal: Reply, home: Home, fake_model: FakeModels
) -> None:
    fake_model.answer_with(answers(renewal))
    await of(home(CONFIG, **RENEWABLE)).renew()
    assert fake_model.requests[-1].headers["x-amz-sso_bearer_token"] == "old"
    ended = of(home(CONFIG, **RENEWABLE), clock=lambda: NOON + 61)
    with pytest.raises((CredentialsError, UpstreamError), match="AWS profile 'work'"):
        await ended.renew()


async def test_a_caller_that_leaves_while_it_is_renewed_does_not_lose_the_new_token(
    home: Home, fake_model: FakeModels, tmp_path: Path
) -> None:
    held = trio.Event()
    fake_model.answer_with(answers(Reply(raw=NEWER.raw, hold=held)))
    role = of(home(CONFIG, **RENEWABLE))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(role.renew)
        await fake_model.arrived(1)
        nursery.cancel_scope.cancel()
        held.set()
    assert json.loads(cache(tmp_path).read_text())["refreshToken"] == "r2"


SIGN_IN = "sign in: aws sso login --profile work"


@pytest.mark.parametrize(
    ("token", "reply", "error", "words"),
    [
        ({}, None, CredentialsError, f"no user has signed in; {SIGN_IN}"),
        ({**GOOD, "expiresAt": "2027-01-15T07:59:59Z"}, None, CredentialsError, f"the sign-in has expired; {SIGN_IN}"),
        ({"accessToken": "x"}, None, CredentialsError, rf"can't be read .*expiresAt.*; {SIGN_IN}"),
        ({**GOOD, "expiresAt": "soon"}, None, CredentialsError, f"can't be read .*; {SIGN_IN}"),
        (
            GOOD,
            Reply(status=401, raw=b'{"message": "Session token not found or invalid"}'),
            CredentialsError,
            f"the sign-in has expired; {SIGN_IN}",
        ),
        (
            GOOD,
            Reply(status=403, raw=b'{"message": "No access"}'),
            CredentialsError,
            says(
                "work.models.aws.credential_chain.sso_keys.4",
                words="…No access…",
                settings="Agents",
                settings_2=123456789012,
            ),
        ),
        (GOOD, Reply(status=503, raw=b"busy"), UpstreamError, r"busy \(HTTP 503\)"),
        (GOOD, Reply(raw=b"<html>"), CredentialsError, says("work.models.aws.credential_chain.sso_keys.5")),
    ],
    ids=["none", "ended", "not whole", "no time", "refused", "no access", "busy", "something else"],
)
async def test_without_a_sign_in_that_is_good_the_error_says_what_to_do(
    token: dict[str, str],
    reply: Reply | None,
    error: type[Exception],
    words: str,
    home: Home,
    fake_model: FakeModels,
) -> None:
    if reply is not None:
        fake_model.script(reply)
    with pytest.raises(error, match=words):
        await of(home(CONFIG, **token)).renew()
    assert len(fake_model.requests) == (reply is not None)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (CONFIG.replace("sso_region = eu-central-1", ""), "sso_region"),
        (CONFIG.replace("eu-central-1", "evil.example/#"), "sso_region"),
        (CONFIG.replace("sso_role_name = Agents", ""), "sso_role_name"),
        (CONFIG.replace("[sso-session my-company]", "[sso-session other]"), "sso_region"),
    ],
)
async def test_a_profile_that_is_not_whole_is_an_error_with_its_key(config: str, key: str, home: Home) -> None:
    with pytest.raises(ConfigError, match=f"AWS profile 'work' has no `{key}`: set it in .sso-session my-company."):
        await of(home(config, **GOOD)).renew()


async def test_a_sign_in_goes_before_keys_of_the_profile_and_serves_roles(home: Home, fake_model: FakeModels) -> None:
    keys = "\naws_access_key_id = OWN\naws_secret_access_key = s\n"
    config = CONFIG.replace("\nsso_account_id", f"{keys}sso_account_id")
    config += "\n[profile role]\nrole_arn = arn:x\nsource_profile = work\n"
    environ = home(config, **GOOD)
    client = ClientSettings(type="bedrock", name="b", region="eu-central-1", profile="work")
    signer = signer_of(client, "bedrock", environ, "c", None)
    assert isinstance(signer, RoleSigner)
    fake_model.answer_with(answers(NEWER))
    with pytest.raises(CredentialsError, match=says("work.models.aws.roles.sts.2")):
        await of(environ, "role").renew()
    assert "Credential=ASIA/" in fake_model.requests[-1].headers["authorization"]
