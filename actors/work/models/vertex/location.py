"""Vertex AI addresses, makers of models, and the search for credentials.

    location     base URL
    global       https://aiplatform.googleapis.com/v1
    us, eu       https://aiplatform.{location}.rep.googleapis.com/v1          several regions
    any other    https://{location}-aiplatform.googleapis.com/v1              one region

The path contains the project: `/projects/{project}/locations/{location}/publishers/google/models/...`. With an API key
and no project (Google's express mode), it has neither: `/publishers/google/models/...`.

The first available credentials are used: `api_key` and `adc_file` of the client, `<NAME>_API_KEY`, `<NAME>_ADC_FILE`,
GOOGLE_APPLICATION_CREDENTIALS, the file of `gcloud auth application-default login`, and the service account of the
machine. The metadata server is asked for the last only on a machine of Google's. On any other, a request to its address
would wait for the timeout.
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
"""File with the manufacturer's product name of the machine."""

_PLATFORMS = ("K_SERVICE", "CLOUD_RUN_JOB", "GAE_ENV", "GAE_SERVICE", "FUNCTION_TARGET")
"""Variables that are set by Google's serverless platforms: Cloud Run, App Engine, Cloud Functions."""

_HOST = "metadata.google.internal"


class CredentialsFile(msgspec.Struct, frozen=True):
    """Credentials file; `named_by` is the setting or variable that names it."""

    path: str
    named_by: str

    def __str__(self) -> str:
        return f"{self.path} ({self.named_by})"


class Machine(msgspec.Struct, frozen=True):
    """Service account of this machine; `host` is its metadata server."""

    host: str

    def __str__(self) -> str:
        return f"the service account of this machine ({self.host})"


Source = CredentialsFile | Machine


def location_of(client: ClientSettings, environ: Mapping[str, str]) -> str:
    """Return the location of the client or the environment, else `global`."""
    location = client.location or environ.get(_variable(client, "location"))
    return location or environ.get("GOOGLE_CLOUD_LOCATION") or environ.get("GOOGLE_CLOUD_REGION") or EVERYWHERE


def vertex_at(location: str) -> str:
    """Return the base URL of a location."""
    if location == EVERYWHERE:
        return "https://aiplatform.googleapis.com/v1"
    # A location without a hyphen (`us`, `eu`) is a multi-region, which has its own host name.
    if "-" not in location:
        return f"https://aiplatform.{location}.rep.googleapis.com/v1"
    return f"https://{location}-aiplatform.googleapis.com/v1"


def checked_location(client: ClientSettings, environ: Mapping[str, str]) -> str:
    """Return the location after a check of its form, since it becomes part of a host name. Raises ConfigError."""
    location = location_of(client, environ)
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", location):
        raise ConfigError(
            f"the `location` of client '{client.name}' is '{location}': expected `global`, `us`, `eu`, or a region "
            "such as `europe-west4`"
        )
    return location


def project_of(client: ClientSettings, environ: Mapping[str, str]) -> str:
    """Return the project of the client or the environment; "" if neither names one."""
    project = client.project_id or environ.get(_variable(client, "project_id"))
    return project or environ.get("GOOGLE_CLOUD_PROJECT") or environ.get("GCLOUD_PROJECT") or ""


def source_of(client: ClientSettings, environ: Mapping[str, str], file: str, product: Path = PRODUCT) -> Source:
    """Return the source of a client's credentials. This checks that files exist, and does not read them.

    Args:
        file: path of the settings, for errors.
        product: file with the product name of the machine.

    Raises:
        CredentialsError: there are no credentials, or a named file does not exist.
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
                raise CredentialsError(f"{by} names {found}, which does not exist or is not a file")
            return CredentialsFile(str(found), by)
    own = gcloud(environ) / "application_default_credentials.json"
    if own.is_file():
        return CredentialsFile(str(own), "of gcloud")
    # GCE_METADATA_HOST and NO_GCE_CHECK are the variables of Google's own libraries.
    host = environ.get("GCE_METADATA_HOST", "")
    if environ.get("NO_GCE_CHECK", "").lower() != "true" and (host or _is_of_google(environ, product)):
        return Machine(host or _HOST)
    raise CredentialsError(
        f"no credentials for client '{client.name}': run `gcloud auth application-default login`, or set the "
        f"key file of a service account with `adc_file` of the client in {file}, or "
        "GOOGLE_APPLICATION_CREDENTIALS"
    )


def gcloud(environ: Mapping[str, str]) -> Path:
    """Return the directory of gcloud's own files."""
    named = environ.get("CLOUDSDK_CONFIG")
    return Path(named) if named else _home(environ) / ".config" / "gcloud"


def project_of_gcloud(environ: Mapping[str, str]) -> str:
    """Return the active project of gcloud; "" if there is none or its files are unreadable."""
    directory = gcloud(environ)
    # interpolation=None: values of gcloud may contain `%`.
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


# --- makers of models


_MAKERS = {"anthropic": ("claude",), "mistralai": ("mistral", "codestral", "ministral")}
"""Makers by the start of a model name."""


def maker_of(model: str) -> tuple[str, str]:
    """Return the maker of a model, and the maker's name of it. Without a known maker, it is `google`."""
    maker, slash, name = model.removeprefix("publishers/").partition("/")
    if slash and maker not in ("models", "endpoints", "projects"):
        return maker, name.removeprefix("models/")
    return next((maker for maker, begins in _MAKERS.items() if model.startswith(begins)), "google"), model
