"""Where credentials of AWS are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.messages import says

from callboard.actors.work.models.aws.keys import AwsKeys, bedrock_at, keys_of, region_of
from callboard.protocol.errors import ConfigError, CredentialsError
from callboard.protocol.settings import ClientSettings

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
        ({}, {}, AwsKeys("FILE", "a%b")),
        ({"profile": "work"}, AMBIENT, AwsKeys("WORK", "w", "t")),
        ({}, {"AWS_PROFILE": "work"}, AwsKeys("WORK", "w", "t")),
        ({}, {**AMBIENT, "AWS_PROFILE": "work"}, AwsKeys("ENV", "e", "s")),
        ({}, {**AMBIENT, "MY_AWS_ACCESS_KEY_ID": "OWN", "MY_AWS_SECRET_ACCESS_KEY": "o"}, AwsKeys("OWN", "o")),
        ({"access_key_id": "A", "secret_access_key": "b", "session_token": "c"}, AMBIENT, AwsKeys("A", "b", "c")),
        ({"access_key_id": "A", "secret_access_key": "b"}, AMBIENT, AwsKeys("A", "b")),
    ],
)
def test_credentials_come_from_the_client_the_environment_or_a_profile(
    fields: dict[str, str], environ: dict[str, str], keys: AwsKeys, home: dict[str, str]
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
        assert keys_of(client(), {"HOME": str(tmp_path), "AWS_SHARED_CREDENTIALS_FILE": named}) == AwsKeys("A", "b")


def test_what_is_missing_is_said(home: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(
        CredentialsError, match=says("work.models.aws.keys.named_keys", name="my-aws", missing="secret_access_key")
    ):
        keys_of(client(access_key_id="A"), home)
    with pytest.raises(
        ConfigError,
        match=says("work.models.aws.keys._no_profile", name="wrok", environ="…credentials", environ_2="…config"),
    ):
        keys_of(client(profile="wrok"), home)
    for key in ("caf\u00e9", "a\nb"):
        with pytest.raises(CredentialsError, match=says("work.models.aws.keys.AwsKeys.__post_init__")):
            keys_of(client(access_key_id="A", secret_access_key=key), home)
    with pytest.raises(CredentialsError, match=says("work.models.aws.keys.keys_of", name_2="default")):
        keys_of(client(), {"HOME": str(tmp_path / "nowhere")})


def test_a_file_that_is_none_is_named(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".aws" / "config").write_text("region = nowhere\n")
    with pytest.raises(ConfigError, match=says("work.models.aws.keys._profile_sections")):
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
