"""Signatures for AWS, against those that AWS has published, and where credentials are looked for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from callboard.actors.work.models.aws.keys import bedrock_at, keys_of, region_of
from callboard.actors.work.models.aws.signing import Keys, Signer
from callboard.protocol.errors import ConfigError, CredentialsError
from callboard.protocol.settings import ClientSettings

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEYS = Keys("AKIDEXAMPLE", SECRET)
NOW = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
HOST = ("Host", "example.amazonaws.com")
FORM = ("Content-Type", "application/x-www-form-urlencoded")

# --- signatures -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "query", "more", "body", "signature"),
    [
        ("GET", "/", (), (), b"", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("GET", "//./foo/../", (), (), b"", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "/", (), (), b"", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        ("GET", "/\u1234", (), (), b"", "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"),
        (
            "GET",
            "/",
            (("Param2", "value2"), ("Param1", "value1")),
            (),
            b"",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        (
            "GET",
            "/",
            (),
            (("My-Header1", " value1"), ("My-Header2", ' "a   b   c"')),
            b"",
            "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
        ),
        (
            "POST",
            "/",
            (),
            (FORM,),
            b"Param1=value1",
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
    ],
    ids=["vanilla", "path", "post", "utf8", "query", "trim", "form"],
)
def test_signatures_are_those_of_the_published_suite(
    method: str,
    path: str,
    query: tuple[tuple[str, str], ...],
    more: tuple[tuple[str, str], ...],
    body: bytes,
    signature: str,
) -> None:
    signer = Signer(KEYS, "us-east-1", "service")
    headers = signer.headers(method, path, (HOST, *more), body, query=query, now=NOW)
    assert headers["authorization"].endswith(f"Signature={signature}")
    assert "Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request" in headers["authorization"]
    assert headers["x-amz-date"] == "20150830T123600Z"


def test_the_example_of_the_manual_is_signed_as_there() -> None:
    headers = Signer(KEYS, "us-east-1", "iam").headers(
        "GET",
        "/",
        (("Host", "iam.amazonaws.com"), ("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")),
        b"",
        query=(("Action", "ListUsers"), ("Version", "2010-05-08")),
        now=NOW,
    )
    assert headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date, "
        "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
    )


def test_the_token_of_a_session_is_sent_and_signed() -> None:
    signer = Signer(Keys("AKIDEXAMPLE", SECRET, "token"), "us-east-1", "service")
    headers = signer.headers("GET", "/", (HOST,), b"", now=NOW)
    assert headers["x-amz-security-token"] == "token"
    assert "SignedHeaders=host;x-amz-date;x-amz-security-token" in headers["authorization"]


def test_no_secret_is_shown() -> None:
    assert SECRET not in repr(Signer(Keys("AKIDEXAMPLE", SECRET, "token"), "r", "s"))


# --- credentials ------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with both files of AWS's."""
    directory = tmp_path / ".aws"
    directory.mkdir()
    (directory / "credentials").write_text(
        "[default]\naws_access_key_id = FILE\naws_secret_access_key = a%b\n"
        "[work]\naws_access_key_id=WORK\naws_secret_access_key=w\naws_session_token=t\n"
    )
    (directory / "config").write_text("[default]\nregion = eu-west-1\n[profile work]\nregion=eu-north-1\noutput=json\n")
    return {"HOME": str(tmp_path)}


def client(**fields: str) -> ClientSettings:
    return ClientSettings(type="bedrock", name="my-aws", **fields)


AMBIENT = {"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "e", "AWS_SESSION_TOKEN": "s"}


@pytest.mark.parametrize(
    ("fields", "environ", "keys"),
    [
        ({}, {}, Keys("FILE", "a%b")),
        ({"profile": "work"}, AMBIENT, Keys("WORK", "w", "t")),
        ({}, {"AWS_PROFILE": "work"}, Keys("WORK", "w", "t")),
        ({}, {**AMBIENT, "AWS_PROFILE": "work"}, Keys("ENV", "e", "s")),
        ({}, {**AMBIENT, "MY_AWS_ACCESS_KEY_ID": "OWN", "MY_AWS_SECRET_ACCESS_KEY": "o"}, Keys("OWN", "o")),
        ({"access_key_id": "A", "secret_access_key": "b", "session_token": "c"}, AMBIENT, Keys("A", "b", "c")),
        ({"access_key_id": "A", "secret_access_key": "b"}, AMBIENT, Keys("A", "b")),
    ],
)
def test_credentials_come_from_the_client_the_environment_or_a_profile(
    fields: dict[str, str], environ: dict[str, str], keys: Keys, home: dict[str, str]
) -> None:
    assert keys_of(client(**fields), home | environ) == keys


@pytest.mark.parametrize(
    ("fields", "environ", "region"),
    [
        ({}, {}, "eu-west-1"),
        ({"profile": "work"}, {}, "eu-north-1"),
        ({}, {"AWS_DEFAULT_REGION": "us-west-2"}, "us-west-2"),
        ({}, {"AWS_DEFAULT_REGION": "us-west-2", "AWS_REGION": "us-east-2"}, "us-east-2"),
        ({}, {"AWS_REGION": "us-east-2", "MY_AWS_REGION": "sa-east-1"}, "sa-east-1"),
        ({"region": "us-east-1"}, {"AWS_REGION": "us-east-2"}, "us-east-1"),
    ],
)
def test_so_does_the_region(fields: dict[str, str], environ: dict[str, str], region: str, home: dict[str, str]) -> None:
    assert region_of(client(**fields), home | environ) == region


def test_the_files_may_be_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("[default]\naws_access_key_id=A\naws_secret_access_key=b\n")
    for named in (str(file), "~/keys"):
        assert keys_of(client(), {"HOME": str(tmp_path), "AWS_SHARED_CREDENTIALS_FILE": named}) == Keys("A", "b")


def test_what_is_missing_is_said(home: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match=r"client 'my-aws' has no `secret_access_key`"):
        keys_of(client(access_key_id="A"), home)
    with pytest.raises(ConfigError, match=r"no profile 'wrok' in .*credentials or .*config"):
        keys_of(client(profile="wrok"), home)
    with pytest.raises(CredentialsError, match=r"set AWS_ACCESS_KEY_ID .* profile 'default' of "):
        keys_of(client(), {"HOME": str(tmp_path / "nowhere")})


def test_a_file_that_is_none_is_named(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".aws" / "config").write_text("region = nowhere\n")
    with pytest.raises(ConfigError, match=r"config can't be read: File contains no section headers"):
        region_of(client(), home)


@pytest.mark.parametrize(
    ("region", "url"),
    [
        ("us-east-1", "https://bedrock-runtime.us-east-1.amazonaws.com"),
        ("cn-north-1", "https://bedrock-runtime.cn-north-1.amazonaws.com.cn"),
        ("", ""),
    ],
)
def test_a_region_has_its_own_address(region: str, url: str) -> None:
    assert bedrock_at(region) == url
