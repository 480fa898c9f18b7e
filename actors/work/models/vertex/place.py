"""Where Vertex AI is reached, and where credentials for it lie.

    location     base URL
    global       https://aiplatform.googleapis.com/v1
    us, eu       https://aiplatform.{location}.rep.googleapis.com/v1          several regions
    any other    https://{location}-aiplatform.googleapis.com/v1              one region

Below it stands the project: `/projects/{project}/locations/{location}/publishers/google/models/...`. With an API key
and no project (Google calls that express mode) there is neither: `/publishers/google/models/...`.

Credentials are, the first that are named: `api_key` and `adc_file` of the client, `<NAME>_API_KEY`, `<NAME>_ADC_FILE`,
GOOGLE_APPLICATION_CREDENTIALS, the file that `gcloud auth application-default login` writes, and the service account of
the machine. That one is asked for only where the machine says that it is Google's: an address of no use elsewhere is
not waited for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as BadFile
from pathlib import Path

import msgspec

from .....protocol.errors import ConfigError, CredentialsError
from .....protocol.settings import ClientSettings

EVERYWHERE = "global"

PRODUCT = Path("/sys/class/dmi/id/product_name")
"""What a machine is called by who made it."""

_PLATFORMS = ("K_SERVICE", "CLOUD_RUN_JOB", "GAE_ENV", "GAE_SERVICE", "FUNCTION_TARGET")
"""Variables that Google's services without machines of their own set: Cloud Run, App Engine, functions."""

_HOST = "metadata.google.internal"


class File(msgspec.Struct, frozen=True):
    """Credentials in a file; `named_by` says who named it."""

    path: str
    named_by: str

    def __str__(self) -> str:
        return f"{self.path} ({self.named_by})"


class Machine(msgspec.Struct, frozen=True):
    """The service account of this machine; `host` is that of its metadata."""

    host: str

    def __str__(self) -> str:
        return f"the service account of this machine ({self.host})"


Source = File | Machine


def location_of(client: ClientSettings, environ: Mapping[str, str]) -> str:
    """Where models run: the location of the client or the environment, else anywhere."""
    told = client.location or environ.get(_variable(client, "location"))
    return told or environ.get("GOOGLE_CLOUD_LOCATION") or environ.get("GOOGLE_CLOUD_REGION") or EVERYWHERE


def vertex_at(location: str) -> str:
    """The base URL of a location."""
    if location == EVERYWHERE:
        return "https://aiplatform.googleapis.com/v1"
    if "-" not in location:
        return f"https://aiplatform.{location}.rep.googleapis.com/v1"
    return f"https://{location}-aiplatform.googleapis.com/v1"


def checked_location(client: ClientSettings, environ: Mapping[str, str]) -> str:
    """`location_of`. Raises ConfigError if it can't be one, as it becomes part of a host's name."""
    location = location_of(client, environ)
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", location):
        raise ConfigError(
            f"the `location` of client '{client.name}' is '{location}': expected `global`, `us`, `eu`, or a region "
            "such as `europe-west4`"
        )
    return location


def project_of(client: ClientSettings, environ: Mapping[str, str]) -> str:
    """The project, if the client or the environment names one."""
    told = client.project_id or environ.get(_variable(client, "project_id"))
    return told or environ.get("GOOGLE_CLOUD_PROJECT") or environ.get("GCLOUD_PROJECT") or ""


def source_of(client: ClientSettings, environ: Mapping[str, str], file: str, product: Path = PRODUCT) -> Source:
    """Where the credentials of a client are.

    Args:
        file: where the client stands, for the errors.
        product: says what the machine is called.

    Raises:
        CredentialsError: there are none, or the file that is named is not there.
    """
    variable = _variable(client, "adc_file")
    named = [
        (client.adc_file, f"`adc_file` of client '{client.name}' in {file}"),
        (environ.get(variable, ""), variable),
        (environ.get("GOOGLE_APPLICATION_CREDENTIALS", ""), "GOOGLE_APPLICATION_CREDENTIALS"),
    ]
    for path, by in named:
        if path:
            found = _expanded(path, environ)
            if not found.is_file():
                raise CredentialsError(f"{by} names {found}, which is no file")
            return File(str(found), by)
    own = gcloud(environ) / "application_default_credentials.json"
    if own.is_file():
        return File(str(own), "of gcloud")
    host = environ.get("GCE_METADATA_HOST", "")
    if environ.get("NO_GCE_CHECK", "").lower() != "true" and (host or _is_of_google(environ, product)):
        return Machine(host or _HOST)
    raise CredentialsError(
        f"no credentials for client '{client.name}': run `gcloud auth application-default login`, or name the key file "
        f"of a service account: `adc_file` of the client in {file}, or GOOGLE_APPLICATION_CREDENTIALS"
    )


def gcloud(environ: Mapping[str, str]) -> Path:
    """The directory of gcloud's own files."""
    named = environ.get("CLOUDSDK_CONFIG")
    return Path(named) if named else _home(environ) / ".config" / "gcloud"


def project_of_gcloud(environ: Mapping[str, str]) -> str:
    """The project that gcloud's commands work on; "" if there is none, or its files can't be read."""
    directory = gcloud(environ)
    parser = ConfigParser(interpolation=None)
    try:
        active = environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or (directory / "active_config").read_text("utf-8").strip()
        parser.read_string((directory / "configurations" / f"config_{active}").read_text("utf-8"))
    except (OSError, UnicodeDecodeError, BadFile):
        return ""
    return parser.get("core", "project", fallback="")


def _is_of_google(environ: Mapping[str, str], product: Path) -> bool:
    if any(environ.get(name) for name in _PLATFORMS):
        return True
    try:
        return product.read_text("utf-8").strip().startswith("Google")
    except (OSError, UnicodeDecodeError):
        return False


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home())


def _expanded(path: str, environ: Mapping[str, str]) -> Path:
    return _home(environ) / path[2:] if path.startswith("~/") else Path(path)


def _variable(client: ClientSettings, key: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", f"{client.name}_{key}".upper())
