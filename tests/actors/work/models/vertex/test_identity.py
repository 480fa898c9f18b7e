"""Tokens for Vertex AI: of service accounts, of people, of machines, from a real server on loopback."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.google_services import (
    EMAIL,
    Google,
    answer,
    claims,
    form,
    minutes_from_now,
    refused,
    service_account,
    signed_in,
    token,
)
from support.messages import says

from callboard.actors.work.models.refreshing_credential import PAUSE
from callboard.actors.work.models.vertex.codecs import EARLY, Identity, boot_seconds
from callboard.actors.work.models.vertex.location import CredentialsFile, Machine, Source
from callboard.actors.work.models.vertex.login import read_login
from callboard.protocol.errors import ConfigError, CredentialsError, UpstreamError

URL = httpx.URL("https://aiplatform.googleapis.com/v1")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def of(path: Path, **more: Any) -> Identity:
    return Identity(CredentialsFile(str(path), "test"), more.pop("project", ""), more.pop("environ", {}), **more)


def of_machine(server: FakeModels, project: str = "") -> Identity:
    return Identity(Machine(server.url.removeprefix("http://")), project, {})


# --- service accounts -------------------------------------------------------------------------------------


async def test_a_service_account_signs_for_its_token(fake_model: FakeModels, tmp_path: Path) -> None:
    Google(fake_model)
    identity = of(service_account(tmp_path, fake_model.url))
    await identity.renew()
    (request,) = fake_model.requests
    sent = form(request)
    assert sent["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    said = claims(sent["assertion"])
    assert (said["iss"], said["aud"]) == (EMAIL, "https://oauth2.googleapis.com/token")
    assert said["scope"] == "https://www.googleapis.com/auth/cloud-platform"
    assert 0 < said["exp"] - said["iat"] <= 3600
    assert identity.sign(URL, b"") == {"authorization": "Bearer ya29.1"}
    assert identity.token.project == "my-project"
    assert "ya29" not in repr(identity.token)


async def test_fifty_who_need_a_token_ask_once_and_again_shortly_before_it_ends(
    fake_model: FakeModels, tmp_path: Path
) -> None:
    google, clock = Google(fake_model), Clock()
    identity = of(service_account(tmp_path, fake_model.url), clock=clock)
    for later, given in ((0.0, 1), (3599 - EARLY - 5, 1), (10.0, 2), (10.0, 2)):
        clock.now += later
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(identity.renew)
        assert google.tokens == given
    assert identity.sign(URL, b"")["authorization"] == "Bearer ya29.2"


async def test_setting_the_date_changes_nothing_for_a_token(
    fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    google = Google(fake_model)
    identity = of(service_account(tmp_path, fake_model.url))
    await identity.renew()
    real = __import__("time").time
    monkeypatch.setattr("time.time", lambda: real() + 86400)
    await identity.renew()
    assert google.tokens == 1
    assert boot_seconds() > 0


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        (refused(400, "invalid_grant", "Invalid JWT Signature."), CredentialsError, f"the key, or {EMAIL}"),
        (
            refused(400, "invalid_grant", "Invalid grant: account not found"),
            CredentialsError,
            says("work.models.vertex.login.VertexLogin._advice.3"),
        ),
        (answer({"access_token": "ya\n29", "expires_in": 3599}), CredentialsError, "invalid characters"),
        (answer({"access_token": "ya\u00e929", "expires_in": 3599}), CredentialsError, "invalid characters"),
        (answer({"access_token": "x", "expires_in": "soon"}), CredentialsError, "soon"),
        (answer({"access_token": "x", "expires_in": 10**30}), CredentialsError, r"key\.json"),
        (
            refused(401, "unauthorized_client", "no access"),
            CredentialsError,
            says("work.models.vertex.login.VertexLogin._advice.4"),
        ),
        (Reply(status=200, raw=b"{}"), CredentialsError, "No access token in response"),
        (Reply(status=200, raw=b"<html>"), CredentialsError, "key.json"),
        (Reply(status=503, raw=b"later"), UpstreamError, r"no token: later \(HTTP 503\)"),
        (Reply(status=429, raw=b"slower"), UpstreamError, r"no token: slower \(HTTP 429\)"),
        (Reply(drop="at once"), UpstreamError, r"127\.0\.0\.1: "),
        (Reply(raw=b"x" * 70_000), CredentialsError, says("io.http.transport.simple_request")),
    ],
    ids=[
        "signature",
        "account",
        "torn",
        "foreign",
        "soon",
        "never",
        "client",
        "empty",
        "page",
        "503",
        "429",
        "hung-up",
        "long",
    ],
)
@pytest.mark.sample(5)
async def test_what_a_service_account_is_refused_says_what_to_do(
    fake_model: FakeModels, tmp_path: Path, reply: Reply, error: type[Exception], words: str
) -> None:
    fake_model.script(reply, reply)
    with pytest.raises(error, match=words) as caught:
        await of(service_account(tmp_path, fake_model.url)).renew()
    assert caught.type is error


async def test_refused_with_an_old_date_a_service_account_names_the_clock(
    fake_model: FakeModels, tmp_path: Path
) -> None:
    fake_model.answer_with(
        lambda _: Reply(
            status=400,
            raw=json.dumps({"error": "invalid_grant", "error_description": "Invalid JWT: reasonable"}).encode(),
            headers={"date": minutes_from_now(-90)},
        )
    )
    with pytest.raises(CredentialsError, match=says("work.models.vertex.login.VertexLogin._advice", way="ahead of")):
        await of(service_account(tmp_path, fake_model.url)).renew()


async def test_a_new_file_is_read_after_a_refusal(fake_model: FakeModels, tmp_path: Path) -> None:
    fake_model.script(refused(400, "invalid_grant", "gone"), token(7))
    clock = Clock()
    identity = of(service_account(tmp_path, fake_model.url, client_email="old@x"), clock=clock)
    with pytest.raises(CredentialsError, match="old@x"):
        await identity.renew()
    service_account(tmp_path, fake_model.url, client_email="new@x")
    clock.now += PAUSE
    await identity.renew()
    assert claims(form(fake_model.requests[-1])["assertion"])["iss"] == "new@x"


async def test_who_is_cancelled_does_not_wait_for_the_token(fake_model: FakeModels, tmp_path: Path) -> None:
    fake_model.script(Reply(delay=30.0), token())
    identity = of(service_account(tmp_path, fake_model.url))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(identity.renew)
            await fake_model.arrived(1)
            nursery.cancel_scope.cancel()
    await identity.renew()
    assert identity.token.access == "ya29.1"


# --- people -----------------------------------------------------------------------------------------------


async def test_who_signed_in_refreshes_and_is_billed_where_the_file_says(
    fake_model: FakeModels, tmp_path: Path
) -> None:
    Google(fake_model)
    file = signed_in(tmp_path, fake_model.url)
    identity = of(file, environ={"CLOUDSDK_CONFIG": str(tmp_path)})
    await identity.renew()
    sent = form(fake_model.requests[0])
    assert (sent["grant_type"], sent["refresh_token"]) == ("refresh_token", "1//r")
    assert identity.token.project == "billed-project"
    assert identity.sign(URL, b"") == {"authorization": "Bearer ya29.1", "x-goog-user-project": "billed-project"}

    (tmp_path / "configurations").mkdir()
    (tmp_path / "active_config").write_text("default")
    (tmp_path / "configurations" / "config_default").write_text("[core]\nproject = from-gcloud\n")
    environ = {"CLOUDSDK_CONFIG": str(tmp_path), "GOOGLE_CLOUD_QUOTA_PROJECT": "other"}
    identity = of(file, environ=environ)
    await identity.renew()
    assert (identity.token.project, identity.token.billed) == ("from-gcloud", "other")
    identity = of(file, environ=environ, project="told")
    await identity.renew()
    assert identity.token.project == "told"


@pytest.mark.parametrize(
    "reply",
    [
        refused(400, "invalid_grant", "Token has been expired or revoked."),
        answer({"error": "invalid_grant", "error_subtype": "invalid_rapt", "error_description": "reauth"}, 400),
    ],
    ids=["revoked", "reauth"],
)
async def test_a_sign_in_that_was_revoked_has_to_be_made_again(
    fake_model: FakeModels, tmp_path: Path, reply: Reply
) -> None:
    fake_model.script(reply)
    with pytest.raises(CredentialsError, match=says("work.models.vertex.login")):
        await of(signed_in(tmp_path, fake_model.url)).renew()


# --- other files ------------------------------------------------------------------------------------------


async def test_a_workload_of_another_cloud_changes_its_token(fake_model: FakeModels, tmp_path: Path) -> None:
    fake_model.answer_with(lambda _: token(3))
    (tmp_path / "oidc").write_text("theirs")
    info = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/x",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{fake_model.url}/v1/token",
        "credential_source": {"file": str(tmp_path / "oidc")},
    }
    file = tmp_path / "pool.json"
    file.write_text(json.dumps(info))
    identity = of(file, project="p")
    await identity.renew()
    assert identity.token.access == "ya29.3"
    assert form(fake_model.requests[0])["subject_token"] == "theirs"
    file.write_text(json.dumps({**info, "credential_source": {"executable": {"command": "touch /tmp/x"}}}))
    with pytest.raises(ConfigError, match=says("work.models.vertex.login.read_login.3")):
        await of(file, project="p").renew()


PERSON = {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}
STS = "https://sts.googleapis.com/v1"
META = "http://169.254.169.254/latest/meta-data"


@pytest.mark.parametrize(
    "info",
    [
        {
            "type": "impersonated_service_account",
            "service_account_impersonation_url": "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/"
            "a@b.iam.gserviceaccount.com:generateAccessToken",
            "source_credentials": PERSON,
            "delegates": [],
        },
        {
            "type": "external_account",
            "audience": "//iam.googleapis.com/x",
            "subject_token_type": "urn:ietf:params:aws:token-type:aws4_request",
            "token_url": f"{STS}/token",
            "credential_source": {
                "environment_id": "aws1",
                "region_url": f"{META}/placement/availability-zone",
                "url": f"{META}/iam/security-credentials",
                "regional_cred_verification_url": "https://sts.{region}.amazonaws.com?Action=GetCallerIdentity",
            },
        },
        {
            "type": "external_account_authorized_user",
            "audience": "a",
            "refresh_token": "r",
            "token_url": f"{STS}/oauthtoken",
            "client_id": "c",
            "client_secret": "s",
        },
    ],
    ids=lambda info: info["type"],
)
def test_every_kind_of_file_that_gcloud_writes_is_read(info: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "adc.json"
    file.write_text(json.dumps(info))
    assert read_login(CredentialsFile(str(file), "test")).is_person is (
        info["type"] == "external_account_authorized_user"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no json", says("work.models.vertex.login.read_login")),
        ("[]", says("work.models.vertex.login._what_it_is.3")),
        ("{}", says("work.models.vertex.login._what_it_is.3")),
        ('{"installed": {"client_id": "x"}}', says("work.models.vertex.login._what_it_is")),
        (
            '{"type": "gdch_service_account"}',
            says("work.models.vertex.login._what_it_is.2", info="gdch_service_account", _KINDS="service_account…"),
        ),
        (
            '{"type": "service_account", "private_key": "no key"}',
            "contains no valid credentials of type 'service_account'",
        ),
        (
            '{"type": "service_account", "private_key": "x", "client_email": "a", "token_uri": "http://localhost"}',
            "contains no valid credentials of type 'service_account'",
        ),
        ('{"type": "authorized_user"}', says("work.models.vertex.login.read_login.5", kind="authorized_user")),
    ],
)
async def test_a_file_that_holds_something_else_is_told(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "adc.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        await of(file).renew()
    assert str(file) in str(caught.value)
    assert "no key" not in str(caught.value)  # what stands there may be a secret


async def test_without_the_extra_the_error_names_it(
    fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("google.auth", "google.oauth2"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "google.oauth2", None)
    with pytest.raises(ConfigError, match=says("work.models.vertex.login.read_login.4")):
        await of(service_account(tmp_path, fake_model.url)).renew()


async def test_without_a_project_nothing_is_asked(fake_model: FakeModels, tmp_path: Path) -> None:
    Google(fake_model)
    file = signed_in(tmp_path, fake_model.url, quota_project_id="")
    with pytest.raises(ConfigError, match=says("work.models.vertex.codecs.Identity._ask", _name="vertexai")):
        await of(file, environ={"CLOUDSDK_CONFIG": str(tmp_path)}).renew()


# --- machines ---------------------------------------------------------------------------------------------


async def test_a_machine_has_a_token_and_a_project(fake_model: FakeModels) -> None:
    google = Google(fake_model)
    identity = of_machine(fake_model)
    await identity.renew()
    await identity.renew()
    assert (identity.token.access, identity.token.project) == ("ya29.1", "machine-project")
    assert google.tokens == 1
    paths = [request.path for request in fake_model.requests]
    assert paths == [
        "/computeMetadata/v1/instance/service-accounts/default/token",
        "/computeMetadata/v1/project/project-id",
    ]
    identity = of_machine(fake_model, "told")
    await identity.renew()
    assert identity.token.project == "told"


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        (
            Reply(status=404, raw=b"Not Found"),
            CredentialsError,
            says("work.models.vertex.codecs.Identity._metadata.2"),
        ),
        (
            Reply(raw=b'{"access_token": "x", "expires_in": 9}'),
            CredentialsError,
            says("work.models.vertex.codecs.Identity._metadata.3"),
        ),
        (
            Reply(raw=b"<html>", headers={"metadata-flavor": "Google"}),
            CredentialsError,
            says("work.models.vertex.codecs.Identity._of_machine", explanation="<html>"),
        ),
        (
            Reply(status=503, raw=b"busy"),
            UpstreamError,
            says("work.models.vertex.codecs.Identity._metadata", explanation="busy", status=503),
        ),
        (Reply(drop="at once"), UpstreamError, r"127\.0\.0\.1: "),
    ],
)
async def test_what_a_machine_is_refused_is_said(
    fake_model: FakeModels, reply: Reply, error: type[Exception], words: str
) -> None:
    fake_model.script(reply)
    with pytest.raises(error, match=words):
        await of_machine(fake_model).renew()


async def test_there_is_no_token_before_it_was_asked_for(tmp_path: Path) -> None:
    source: Source = Machine("metadata.example")
    with pytest.raises(CredentialsError, match=says("work.models.vertex.codecs.Identity.token")):
        _ = Identity(source, "", {}).token
