"""Where Vertex AI is, and where credentials for it are looked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.messages import says

from callboard.actors.work.models.vertex.location import (
    CredentialsFile,
    Machine,
    checked_location,
    project_of,
    project_of_gcloud,
    source_of,
    vertex_at,
)
from callboard.protocol.errors import ConfigError, CredentialsError
from callboard.protocol.settings import ClientSettings

CLIENT = ClientSettings(type="vertexai", name="my-google")
NOWHERE = Path("/nonexistent/product_name")


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("global", "aiplatform.googleapis.com"),
        ("us", "aiplatform.us.rep.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
        ("us-central1", "us-central1-aiplatform.googleapis.com"),
        ("europe-west4", "europe-west4-aiplatform.googleapis.com"),
    ],
)
def test_each_kind_of_location_has_its_host(location: str, host: str) -> None:
    assert vertex_at(location) == f"https://{host}/v1"


def test_location_and_project_are_those_of_the_client_then_of_the_environment() -> None:
    environ = {
        "MY_GOOGLE_LOCATION": "us-east5",
        "GOOGLE_CLOUD_LOCATION": "eu",
        "GOOGLE_CLOUD_REGION": "us",
        "MY_GOOGLE_PROJECT_ID": "p1",
        "GOOGLE_CLOUD_PROJECT": "p2",
        "GCLOUD_PROJECT": "p3",
    }
    own = ClientSettings(type="vertexai", name="my-google", location="asia-east1", project_id="p0")
    assert (checked_location(own, environ), project_of(own, environ)) == ("asia-east1", "p0")
    for location, project in (("us-east5", "p1"), ("eu", "p2"), ("us", "p3"), ("global", "")):
        assert (checked_location(CLIENT, environ), project_of(CLIENT, environ)) == (location, project)
        for name in list(environ)[:1] + [name for name in environ if "PROJECT" in name][:1]:
            del environ[name]


@pytest.mark.parametrize("location", ["evil.example/", "a.b", "us central1", "-a", "US-EAST1", "a@b"])
def test_a_location_that_is_none_is_no_part_of_a_host(location: str) -> None:
    client = ClientSettings(type="vertexai", name="g", location=location)
    with pytest.raises(ConfigError, match=says("work.models.vertex.location.checked_location")):
        checked_location(client, {})


def test_credentials_are_the_first_that_are_named(tmp_path: Path) -> None:
    for name in ("own", "variable", "google"):
        (tmp_path / f"{name}.json").write_text("{}")
    adc = tmp_path / ".config" / "gcloud" / "application_default_credentials.json"
    adc.parent.mkdir(parents=True)
    adc.write_text("{}")
    environ = {
        "HOME": str(tmp_path),
        "MY_GOOGLE_ADC_FILE": str(tmp_path / "variable.json"),
        "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "google.json"),
        "GCE_METADATA_HOST": "metadata.example",
    }
    own = ClientSettings(type="vertexai", name="my-google", adc_file="~/own.json")
    found = source_of(own, environ, "config.yaml", NOWHERE)
    assert found == CredentialsFile(str(tmp_path / "own.json"), "`adc_file` of client 'my-google' in config.yaml")
    assert source_of(CLIENT, environ, "c", NOWHERE) == CredentialsFile(
        str(tmp_path / "variable.json"), "MY_GOOGLE_ADC_FILE"
    )
    del environ["MY_GOOGLE_ADC_FILE"]
    assert str(source_of(CLIENT, environ, "c", NOWHERE)).endswith("google.json (GOOGLE_APPLICATION_CREDENTIALS)")
    del environ["GOOGLE_APPLICATION_CREDENTIALS"]
    assert source_of(CLIENT, environ, "c", NOWHERE) == CredentialsFile(str(adc), "of gcloud")
    elsewhere = {**environ, "CLOUDSDK_CONFIG": str(tmp_path)}
    assert source_of(CLIENT, elsewhere, "c", NOWHERE) == Machine("metadata.example")


def test_a_file_that_is_named_and_not_there_is_told(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "GOOGLE_APPLICATION_CREDENTIALS": "~/gone.json", "K_SERVICE": "x"}
    with pytest.raises(
        CredentialsError,
        match=says("work.models.vertex.location.source_of.2", by="GOOGLE_APPLICATION_CREDENTIALS", found="…/gone.json"),
    ):
        source_of(CLIENT, environ, "c", NOWHERE)


def test_metadata_are_asked_for_only_where_they_can_be(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    product = tmp_path / "product_name"
    with pytest.raises(CredentialsError, match=says("work.models.vertex.location.source_of.3", name="my-google")):
        source_of(CLIENT, home, "c", NOWHERE)
    product.write_text("Standard PC\n")
    with pytest.raises(CredentialsError, match=says("work.models.vertex.location.source_of.3", file="c")):
        source_of(CLIENT, home, "c", product)
    product.write_text("Google Compute Engine\n")
    assert source_of(CLIENT, home, "c", product) == Machine("metadata.google.internal")
    for name in ("K_SERVICE", "CLOUD_RUN_JOB", "GAE_ENV"):
        assert source_of(CLIENT, {**home, name: "x"}, "c", NOWHERE) == Machine("metadata.google.internal")
    with pytest.raises(CredentialsError):
        source_of(CLIENT, {**home, "NO_GCE_CHECK": "true"}, "c", product)


def test_the_project_of_gcloud_is_that_of_its_active_configuration(tmp_path: Path) -> None:
    environ = {"CLOUDSDK_CONFIG": str(tmp_path)}
    assert project_of_gcloud(environ) == ""
    (tmp_path / "configurations").mkdir()
    (tmp_path / "active_config").write_text("work\n")
    (tmp_path / "configurations" / "config_work").write_text("[core]\naccount = a@b\nproject = from-gcloud\n")
    assert project_of_gcloud(environ) == "from-gcloud"
    (tmp_path / "configurations" / "config_bad").write_text(json.dumps({"no": "ini"}))
    assert project_of_gcloud({**environ, "CLOUDSDK_ACTIVE_CONFIG_NAME": "bad"}) == ""
