"""Roles of service accounts of Kubernetes."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs

import pytest
from support.fake_models import FakeModels, Reply
from support.messages import says

from callboard.actors.work.models.aws.credential_chain import RoleSigner, signer_of
from callboard.actors.work.models.aws.keys import Signer
from callboard.actors.work.models.aws.roles import EARLY, WebIdentity
from callboard.protocol.errors import ConfigError, CredentialsError
from callboard.protocol.settings import ClientSettings

NOON = 1_800_000_000.0
"""2027-01-15T08:00:00Z."""

GIVEN = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <AssumeRoleWithWebIdentityResult>
    <SubjectFromWebIdentityToken>system:serviceaccount:default:agents</SubjectFromWebIdentityToken>
    <Credentials>
      <SessionToken>AQoDYXdzEE0a8ANXXXXXXXXNO1ewxE5TijQyp+IEXAMPLE</SessionToken>
      <SecretAccessKey>wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY</SecretAccessKey>
      <Expiration>2027-01-15T09:00:00Z</Expiration>
      <AccessKeyId>ASgeIAIOSFODNN7EXAMPLE</AccessKeyId>
    </Credentials>
  </AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""


def environ(server: FakeModels, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "token").write_text("from-kubernetes\n")
    return {
        "HOME": str(tmp_path),
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
        "AWS_ROLE_ARN": "arn:aws:iam::1:role/agents",
        "AWS_ENDPOINT_URL_STS": server.url,
    }


async def test_a_token_of_kubernetes_is_changed_for_keys_and_read_again(fake_model: FakeModels, tmp_path: Path) -> None:
    fake_model.answer_with(lambda _: Reply(raw=GIVEN.encode(), headers={"content-type": "text/xml"}))
    clock = [NOON]
    role = WebIdentity(environ(fake_model, tmp_path), "eu-central-1", lambda: clock[0])
    await role.renew()
    assert role.keys().access_key_id == "ASgeIAIOSFODNN7EXAMPLE"
    (tmp_path / "token").write_text("another")
    clock[0] += 3600 - EARLY + 1
    await role.renew()
    first, second = ({k: v[0] for k, v in parse_qs(each.body.decode()).items()} for each in fake_model.requests)
    assert first == {
        "Action": "AssumeRoleWithWebIdentity",
        "RoleArn": "arn:aws:iam::1:role/agents",
        "RoleSessionName": f"callboard-{int(NOON)}",
        "WebIdentityToken": "from-kubernetes",
        "Version": "2011-06-15",
    }
    assert second["WebIdentityToken"] == "another"
    assert "authorization" not in fake_model.requests[0].headers


async def test_what_goes_wrong_is_told(fake_model: FakeModels, tmp_path: Path) -> None:
    error = "<Code>ExpiredTokenException</Code><Message>Token expired</Message>"
    fake_model.script(Reply(status=400, raw=f"<ErrorResponse><Error>{error}</Error></ErrorResponse>".encode()))
    told = environ(fake_model, tmp_path)
    words = r"AWS_WEB_IDENTITY_TOKEN_FILE: Token expired \(HTTP 400\); the role is arn"
    with pytest.raises(CredentialsError, match=words):
        await WebIdentity(told, "eu-central-1").renew()
    (tmp_path / "token").unlink()
    with pytest.raises(
        ConfigError, match=says("work.models.aws.roles.WebIdentity._ask", _FILE="AWS_WEB_IDENTITY_TOKEN_FILE")
    ):
        await WebIdentity(told, "eu-central-1").renew()


async def test_it_is_used_where_no_keys_and_no_profile_are_named(fake_model: FakeModels, tmp_path: Path) -> None:
    told = environ(fake_model, tmp_path)
    client = ClientSettings(type="bedrock", name="b", region="eu-central-1")
    signer = signer_of(client, "bedrock", told, "c", None)
    assert isinstance(signer, RoleSigner)
    assert (type(signer.role), signer.role.named) == (WebIdentity, "AWS_WEB_IDENTITY_TOKEN_FILE")
    named = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "s"}
    assert isinstance(signer_of(client, "bedrock", told | named, "c", None), Signer)
