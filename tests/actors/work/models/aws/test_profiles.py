"""Profiles of AWS whose keys are asked for: roles that are assumed, programs that print keys."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import trio
from support.fake_models import FakeModels, Reply, Request
from support.gateways import Silent, reaching
from support.messages import says

from callboard.actors.work.models.aws.credential_chain import ProfileRole, RoleSigner, signer_of
from callboard.actors.work.models.aws.keys import AwsKeys, Signer
from callboard.actors.work.models.aws.roles import EARLY
from callboard.protocol.chat import ChatRequest, UserTurn
from callboard.protocol.errors import ConfigError, CredentialsError, UpstreamError
from callboard.protocol.settings import ClientSettings, Settings
from callboard.supervisors import Root

NOON = 1_800_000_000.0
"""2027-01-15T08:00:00Z."""

Files = Callable[[str], dict[str, str]]


def assumed(key: str = "ASSUMED") -> Reply:
    """What STS answers; the shape is that of its API reference."""
    xml = f"""<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <AssumeRoleResult>
    <AssumedRoleUser><AssumedRoleId>ARO123EXAMPLE123:s</AssumedRoleId><Arn>arn:aws:sts::1:assumed-role/r/s</Arn></AssumedRoleUser>
    <Credentials>
      <AccessKeyId>{key}</AccessKeyId>
      <SecretAccessKey>wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY</SecretAccessKey>
      <SessionToken>AQoDYXdzEPT//////////wEXAMPLE==</SessionToken>
      <Expiration>2027-01-15T09:00:00Z</Expiration>
    </Credentials>
  </AssumeRoleResult>
  <ResponseMetadata><RequestId>c6104cbe</RequestId></ResponseMetadata>
</AssumeRoleResponse>"""
    return Reply(raw=xml.encode(), headers={"content-type": "text/xml"})


def denied(code: str, message: str, status: int = 403) -> Reply:
    xml = f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
    return Reply(status=status, raw=xml.encode())


@pytest.fixture
def files(tmp_path: Path, fake_model: FakeModels) -> Files:
    """Writes ~/.aws/config; gives the environment for it, whose STS is the test's server."""

    def write(config: str) -> dict[str, str]:
        (tmp_path / ".aws").mkdir(exist_ok=True)
        (tmp_path / ".aws" / "config").write_text(config)
        return {"HOME": str(tmp_path), "AWS_ENDPOINT_URL_STS": fake_model.url, "PATH": "/usr/bin:/bin"}

    return write


def of(name: str, environ: dict[str, str], root: Root | None = None) -> ProfileRole:
    return ProfileRole(name, environ, "eu-central-1", root, lambda: NOON)


def asked(request: Request) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(request.body.decode()).items()}


# --- roles ------------------------------------------------------------------------------------------------

TWO = """
[default]
aws_access_key_id = BASE
aws_secret_access_key = s
[profile work]
role_arn = arn:aws:iam::1:role/agents
source_profile = default
external_id = x&y
region = eu-north-1
"""


async def test_a_role_is_assumed_with_the_keys_of_another_profile(files: Files, fake_model: FakeModels) -> None:
    fake_model.answer_with(lambda _: assumed())
    role = of("work", files(TWO))
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(role.renew)
    keys = role.keys()
    assert (keys.access_key_id, keys.session_token) == ("ASSUMED", "AQoDYXdzEPT//////////wEXAMPLE==")
    (request,) = fake_model.requests
    assert (request.method, request.path) == ("POST", "/")
    assert asked(request) == {
        "Action": "AssumeRole",
        "Version": "2011-06-15",
        "RoleArn": "arn:aws:iam::1:role/agents",
        "RoleSessionName": f"callboard-{int(NOON)}",
        "DurationSeconds": "3600",
        "ExternalId": "x&y",
    }
    authorization = request.headers["authorization"]
    assert "Credential=BASE/" in authorization
    assert "/eu-north-1/sts/aws4_request" in authorization
    assert "SignedHeaders=content-type;host;x-amz-date" in authorization


async def test_roles_may_follow_each_other(files: Files, fake_model: FakeModels) -> None:
    config = f"{TWO}\n[profile far]\nrole_arn = arn:far\nsource_profile = work\nrole_session_name = me\n"
    fake_model.answer_with(lambda request: assumed("FAR" if "far" in request.body.decode() else "NEAR"))
    role = of("far", files(config))
    await role.renew()
    assert role.keys().access_key_id == "FAR"
    near, far = fake_model.requests
    assert "Credential=BASE/" in near.headers["authorization"]
    assert "Credential=NEAR/" in far.headers["authorization"]
    assert far.headers["x-amz-security-token"] == "AQoDYXdzEPT//////////wEXAMPLE=="
    assert asked(far)["RoleSessionName"] == "me"


async def test_a_profile_may_be_its_own_source(files: Files, fake_model: FakeModels) -> None:
    fake_model.answer_with(lambda _: assumed())
    text = "[profile x]\nrole_arn = a\nsource_profile = x\naws_access_key_id = OWN\naws_secret_access_key = s\n"
    role = of("x", files(text))
    await role.renew()
    assert "Credential=OWN/" in fake_model.requests[0].headers["authorization"]


async def test_the_source_may_be_the_environment_or_the_container(files: Files, fake_model: FakeModels) -> None:
    granted = {"AccessKeyId": "ROLE", "SecretAccessKey": "s", "Token": "t", "Expiration": "2027-01-15T09:00:00Z"}
    fake_model.answer_with(lambda r: Reply(raw=json.dumps(granted).encode()) if r.path == "/role" else assumed())
    for source, more, key in (
        ("Environment", {"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "s"}, "ENV"),
        ("EcsContainer", {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{fake_model.url}/role"}, "ROLE"),
    ):
        role = of("x", files(f"[profile x]\nrole_arn = a\ncredential_source = {source}\n") | more)
        await role.renew()
        assert f"Credential={key}/" in fake_model.requests[-1].headers["authorization"]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("[profile x]\nrole_arn = a\n", says("work.models.aws.credential_chain.ProfileRole._source.4")),
        (
            "[profile x]\nrole_arn = a\nsource_profile = y\n",
            says("work.models.aws.credential_chain.ProfileRole._of.2", name="y"),
        ),
        (
            "[profile x]\nrole_arn = a\nsource_profile = d\nmfa_serial = m\n",
            says("work.models.aws.credential_chain.ProfileRole._source"),
        ),
        (
            "[profile x]\nrole_arn = a\nsource_profile = y\n[profile y]\nrole_arn = b\nsource_profile = x\n",
            says("work.models.aws.credential_chain.ProfileRole._of", name="x", before="x -> y"),
        ),
        (
            "[profile x]\nrole_arn = a\ncredential_source = Environment\n",
            says("work.models.aws.credential_chain.ProfileRole._source.2"),
        ),
    ],
)
async def test_a_profile_that_is_not_whole_is_told(
    files: Files, fake_model: FakeModels, config: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        await of("x", files(config)).renew()
    assert fake_model.requests == []


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        (
            denied("AccessDenied", "not authorized to perform: sts:AssumeRole"),
            CredentialsError,
            says("work.models.aws.roles.sts", words="…sts:AssumeRole…", asked="…agents"),
        ),
        (denied("ExpiredToken", "The security token included in the request is expired"), CredentialsError, "expired"),
        (denied("Throttling", "Rate exceeded", 400), UpstreamError, "Rate exceeded"),
        (denied("InternalFailure", "oops", 500), UpstreamError, r"oops \(HTTP 500\)"),
        (
            Reply(raw=b"<html>proxy</html>"),
            CredentialsError,
            says("work.models.aws.roles.sts.2", explanation="<html>proxy…"),
        ),
    ],
)
async def test_what_sts_refuses_is_said(
    files: Files, fake_model: FakeModels, reply: Reply, error: type[Exception], words: str
) -> None:
    fake_model.script(reply)
    with pytest.raises(error, match=words):
        await of("work", files(TWO)).renew()


# --- programs ---------------------------------------------------------------------------------------------


def program(tmp_path: Path, code: str) -> str:
    file = tmp_path / "my tool.py"
    file.write_text(code)
    return f"[profile x]\ncredential_process = {sys.executable} '{file}' --account 7\n"


def printing(**keys: Any) -> str:
    body = {"Version": 1, "AccessKeyId": "PRINTED", "SecretAccessKey": "s", **keys}
    return f"import sys\nassert sys.argv[1:] == ['--account', '7']\nprint({json.dumps(body)!r})\n"


async def test_a_program_prints_keys_and_is_started_again_before_they_end(files: Files, tmp_path: Path) -> None:
    code = printing(SessionToken="t", Expiration="2027-01-15T09:00:00Z")
    count = f"open({str(tmp_path / 'count')!r}, 'a').write('x')\n"
    environ = files(program(tmp_path, count + code))
    clock = [NOON]
    async with Root() as root:
        role = ProfileRole("x", environ, "eu-central-1", root, lambda: clock[0])
        for clock[0] in (NOON, NOON + 60, NOON + 3600 - EARLY + 1):
            await role.renew()
        assert role.keys() == AwsKeys("PRINTED", "s", "t")
    assert (tmp_path / "count").read_text() == "xx"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "import sys\nprint('no session', file=sys.stderr)\nsys.exit(3)",
            "the command exited with status 3: no session",
        ),
        ("print('hello')", "did not print AWS keys as JSON"),
        (printing(Version=2), "printed keys in the format of version 2; expected version 1"),
        (printing(Expiration="2020-01-15T09:00:00Z"), "printed keys that have expired"),
        ("print('{\"Version\": 1}')", "did not print AWS keys as JSON"),
    ],
)
async def test_a_program_that_prints_no_keys_is_told(files: Files, tmp_path: Path, code: str, words: str) -> None:
    environ = files(program(tmp_path, code))
    async with Root() as root:
        with pytest.raises(CredentialsError, match=f"`credential_process` of AWS profile 'x'.*{words}"):
            await of("x", environ, root).renew()


async def test_a_program_that_is_none_is_told(files: Files) -> None:
    async with Root() as root:
        with pytest.raises(CredentialsError, match="no-such-tool"):
            await of("x", files("[profile x]\ncredential_process = no-such-tool\n"), root).renew()
        with pytest.raises(
            ConfigError,
            match=says("work.models.aws.credential_chain.ProfileRole._printed.3", error="No closing quotation"),
        ):
            await of("x", files("[profile x]\ncredential_process = 'open\n"), root).renew()
    with pytest.raises(ConfigError, match=says("work.models.aws.credential_chain.ProfileRole._printed.2")):
        await of("x", files("[profile x]\ncredential_process = true\n")).renew()


async def test_a_program_ends_with_who_waits_for_it(files: Files, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    environ = files(program(tmp_path, f"import time\nopen({str(runs)!r}, 'w')\ntime.sleep(60)\n"))
    async with Root() as root:
        role = of("x", environ, root)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(role.renew)
                while not runs.exists():
                    await trio.sleep(0.05)
                nursery.cancel_scope.cancel()
            while root.actor.children:
                await trio.sleep(0.05)


# --- who signs --------------------------------------------------------------------------------------------


async def test_keys_that_are_named_go_before_the_profile(files: Files) -> None:
    environ = files(f"{TWO}\n[profile both]\nrole_arn = a\nsource_profile = default\naws_access_key_id=A\n")
    client = ClientSettings(type="bedrock", name="b", region="eu-central-1")
    own = ClientSettings(
        type="bedrock", name="b", region="eu-central-1", access_key_id="A", secret_access_key="s", profile="work"
    )
    assert isinstance(signer_of(own, "bedrock", environ, "c", None), Signer)
    assert isinstance(signer_of(client, "bedrock", environ, "c", None), Signer)
    by_profile = signer_of(client, "bedrock", environ | {"AWS_PROFILE": "work"}, "c", None)
    assert isinstance(by_profile, RoleSigner)
    assert isinstance(by_profile.role, ProfileRole)
    ambient = {"AWS_PROFILE": "work", "AWS_ACCESS_KEY_ID": "E", "AWS_SECRET_ACCESS_KEY": "s"}
    assert isinstance(signer_of(client, "bedrock", environ | ambient, "c", None), Signer)


async def test_a_model_is_asked_with_the_keys_of_an_assumed_role(files: Files, fake_model: FakeModels) -> None:
    said = {"output": {"message": {"content": [{"text": "hello"}]}}, "stopReason": "end_turn"}
    fake_model.answer_with(lambda r: assumed() if r.path == "/" else Reply(raw=json.dumps(said).encode()))
    client = ClientSettings(
        type="bedrock", name="b", api_base=f"{fake_model.url}/x", region="eu-central-1", profile="work"
    )
    async with reaching(Settings(clients=(client,)), files(TWO)) as gateway:
        request = ChatRequest(model="b:amazon.nova-lite-v1:0", messages=(UserTurn("hi"),))
        reply = await gateway.chat(Silent(), request, attempts=1)
    assert reply.text == "hello"
    assert "Credential=ASSUMED/" in fake_model.requests[-1].headers["authorization"]
