"""Roles of containers and machines: who is asked, how often, and what follows if there is no answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply, Request
from support.gateways import Silent, reaching
from support.messages import says

from callboard.actors.work.models.aws.keys import AwsKeys
from callboard.actors.work.models.aws.roles import AssumedRole
from callboard.actors.work.models.refreshing_credential import PAUSE
from callboard.protocol.chat import ChatRequest, UserTurn
from callboard.protocol.errors import ConfigError, CredentialsError, UpstreamError
from callboard.protocol.settings import ClientSettings, Settings

NOON = 1_800_000_000.0
"""2027-01-15T08:00:00Z."""


def granted(key: str = "ROLE", expiration: str = "2027-01-15T09:00:00Z") -> Reply:
    body = {"AccessKeyId": key, "SecretAccessKey": "s", "Token": "t", "Expiration": expiration, "RoleArn": "arn"}
    return Reply(raw=json.dumps(body).encode())


def machine(request: Request) -> Reply:
    """The metadata service, version 2."""
    if request.method == "PUT":
        assert request.path == "/latest/api/token"
        assert request.headers["x-aws-ec2-metadata-token-ttl-seconds"] == "21600"
        return Reply(raw=b"metadata-token")
    if request.headers.get("x-aws-ec2-metadata-token") != "metadata-token":
        return Reply(status=401, raw=b"Unauthorized")
    if request.path.endswith("/security-credentials/"):
        return Reply(raw=b"my-role")
    assert request.path == "/latest/meta-data/iam/security-credentials/my-role"
    return granted()


def of_container(fake_model: FakeModels, clock: Callable[[], float] = lambda: NOON, **more: str) -> AssumedRole:
    environ = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{fake_model.url}/v1/credentials?id=1", **more}
    return AssumedRole(environ, "no keys", clock)


def of_machine(fake_model: FakeModels) -> AssumedRole:
    return AssumedRole({"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{fake_model.url}/"}, "no keys", lambda: NOON)


# --- who is asked -----------------------------------------------------------------------------------------


async def test_a_container_has_a_role_and_a_token_to_ask_for_it(fake_model: FakeModels, tmp_path: Path) -> None:
    fake_model.answer_with(lambda _: granted())
    file = tmp_path / "token"
    file.write_text("from-file\n")
    for more, token in (
        ({}, None),
        ({"AWS_CONTAINER_AUTHORIZATION_TOKEN": "from-environment"}, "from-environment"),
        ({"AWS_CONTAINER_AUTHORIZATION_TOKEN": "x", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(file)}, "from-file"),
    ):
        role = of_container(fake_model, **more)
        await role.renew()
        assert role.keys() == AwsKeys("ROLE", "s", "t")
        request = fake_model.requests[-1]
        assert (request.method, request.path) == ("GET", "/v1/credentials?id=1")
        assert request.headers.get("authorization") == token


async def test_a_machine_has_a_role_and_wants_to_be_asked_in_three_steps(fake_model: FakeModels) -> None:
    fake_model.answer_with(machine)
    role = of_machine(fake_model)
    await role.renew()
    assert role.keys() == AwsKeys("ROLE", "s", "t")
    assert [request.method for request in fake_model.requests] == ["PUT", "GET", "GET"]


@pytest.mark.parametrize("url", ["http://example.com/x", "http://10.0.0.1/x", "file:///etc/passwd"])
async def test_keys_do_not_come_from_anywhere(url: str) -> None:
    with pytest.raises(ConfigError, match=says("work.models.aws.roles.AssumedRole._of_container")):
        await AssumedRole({"AWS_CONTAINER_CREDENTIALS_FULL_URI": url}, "no keys").renew()


async def test_a_token_that_cannot_be_read_is_named(fake_model: FakeModels, tmp_path: Path) -> None:
    role = of_container(fake_model, AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match=says("work.models.aws.roles.AssumedRole._of_container.2", error="…gone…")):
        await role.renew()


# --- how often --------------------------------------------------------------------------------------------


async def test_fifty_that_find_no_keys_ask_once(fake_model: FakeModels) -> None:
    fake_model.answer_with(lambda _: granted())
    role = of_container(fake_model)
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(role.renew)
    assert len(fake_model.requests) == 1


async def test_who_waits_goes_on_if_the_one_that_asks_is_cancelled(fake_model: FakeModels) -> None:
    fake_model.script(Reply(hold=trio.Event()), granted())
    role = of_container(fake_model)
    async with trio.open_nursery() as nursery:
        first = trio.CancelScope()

        async def asks() -> None:
            with first:
                await role.renew()

        nursery.start_soon(asks)
        await fake_model.arrived(1)
        nursery.start_soon(role.renew)
        first.cancel()
    assert role.keys().access_key_id == "ROLE"


async def test_keys_are_renewed_before_they_expire(fake_model: FakeModels) -> None:
    now = NOON
    fake_model.script(granted("FIRST"), granted("SECOND", "2027-01-15T10:00:00Z"))
    role = of_container(fake_model, lambda: now)
    for at, key in ((0, "FIRST"), (3299, "FIRST"), (3301, "SECOND"), (3600, "SECOND")):
        now = NOON + at
        await role.renew()
        assert role.keys().access_key_id == key
    assert len(fake_model.requests) == 2


async def test_old_keys_are_used_while_they_are_good_and_no_longer(fake_model: FakeModels) -> None:
    now = NOON
    fake_model.script(granted("FIRST"))
    fake_model.answer_with(lambda _: Reply(status=500, raw=b"broken"))
    role = of_container(fake_model, lambda: now)
    for at in (0, 3400, 3599):
        now = NOON + at
        await role.renew()
        assert role.keys().access_key_id == "FIRST"
    now = NOON + 3600
    with pytest.raises(
        UpstreamError,
        match=says("work.models.aws.roles.AssumedRole._answer", hostname="127.0.0.1", explanation="broken", status=500),
    ):
        await role.renew()


async def test_a_failure_is_told_to_all_and_passes(fake_model: FakeModels) -> None:
    now = NOON
    fake_model.script(Reply(status=500, raw=b"broken"), granted())
    role = of_container(fake_model, lambda: now)
    told = 0

    async def asks() -> None:
        nonlocal told
        with pytest.raises(UpstreamError, match="broken"):
            await role.renew()
        told += 1

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(asks)
    assert (told, len(fake_model.requests)) == (20, 1)
    now += PAUSE
    await role.renew()
    assert role.keys().access_key_id == "ROLE"


# --- no answer --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (Reply(status=404, raw=b"no such role"), CredentialsError, "no such role"),
        (Reply(raw=b'{"Code": "AssumeRoleUnauthorizedAccess"}'), CredentialsError, "AssumeRoleUnauthorizedAccess"),
        (Reply(raw=b"x" * 100_000), CredentialsError, says("io.http.transport.simple_request")),
        (Reply(status=503, raw=b""), UpstreamError, "no explanation"),
        (Reply(drop="at once"), UpstreamError, "127.0.0.1"),
    ],
)
async def test_what_a_container_is_refused_is_said(
    fake_model: FakeModels, reply: Reply, kind: type[Exception], words: str
) -> None:
    fake_model.script(reply)
    with pytest.raises(kind, match=words):
        await of_container(fake_model).renew()


async def test_a_machine_without_a_role_is_told_where_else_keys_were_looked_for(fake_model: FakeModels) -> None:
    fake_model.answer_with(lambda request: machine(request) if request.method == "PUT" else Reply(status=404, raw=b""))
    with pytest.raises(
        CredentialsError,
        match=says("work.models.aws.roles.AssumedRole._of_instance", _where_else="no keys", error="127…"),
    ):
        await of_machine(fake_model).renew()
    nobody = AssumedRole({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9"}, "no keys")
    with pytest.raises(
        CredentialsError, match=says("work.models.aws.roles.AssumedRole._of_instance", _where_else="no keys")
    ):
        await nobody.renew()
    with pytest.raises(CredentialsError, match="no keys"):
        nobody.keys()


async def test_a_machine_that_is_busy_may_be_asked_again(fake_model: FakeModels) -> None:
    fake_model.answer_with(lambda _: Reply(status=503, raw=b"busy"))
    with pytest.raises(UpstreamError, match="busy"):
        await of_machine(fake_model).renew()


# --- through the gateway ----------------------------------------------------------------------------------


async def test_requests_to_bedrock_are_signed_with_the_keys_of_the_role(fake_model: FakeModels, tmp_path: Path) -> None:
    said = {"output": {"message": {"content": [{"text": "hi"}]}}, "stopReason": "end_turn"}

    def answer(request: Request) -> Reply:
        return (
            granted(expiration="2099-01-01T00:00:00Z")
            if "cred" in request.path
            else Reply(raw=json.dumps(said).encode())
        )

    fake_model.answer_with(answer)
    client = ClientSettings(type="bedrock", name="bedrock", api_base=fake_model.url, region="us-east-1")
    environ = {"HOME": str(tmp_path), "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{fake_model.url}/cred"}
    async with reaching(Settings(clients=(client,)), environ) as gateway:
        for _ in range(2):
            reply = await gateway.chat(Silent(), ChatRequest(model="bedrock:m", messages=(UserTurn("hello"),)))
            assert reply.text == "hi"
    assert [request.path for request in fake_model.requests] == ["/cred", "/model/m/converse", "/model/m/converse"]
    assert "Credential=ROLE/" in fake_model.requests[1].headers["authorization"]
    assert fake_model.requests[1].headers["x-amz-security-token"] == "t"
