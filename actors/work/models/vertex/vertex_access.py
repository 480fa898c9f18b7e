"""Access to Vertex AI: paths and headers for requests with a token or an API key."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from .....protocol.settings import ClientSettings
from .. import codec
from .identity import Bearer, Identity
from .place import EVERYWHERE, checked_location, project_of, source_of


class VertexAccess(msgspec.Struct, frozen=True):
    """Location, project and credentials of a client's requests.

    Attributes:
        location: location of the models.
        identity: adds a token to the requests; None if an API key is used.
        project: project of an API key that is not for express mode; else "".
    """

    location: str = EVERYWHERE
    identity: Identity | None = None
    project: str = ""

    @property
    def is_express(self) -> bool:
        """True for an API key without a project, which gives access only to Google's own models."""
        return self.identity is None and not self.project

    def below(self, path: str) -> str:
        """Return the full path of `path` under the project. An identity needs a token first, see `Identity.renew`."""
        if self.is_express or path.startswith("/projects/"):
            return path
        project = self.identity.token.project if self.identity is not None else self.project
        return f"/projects/{quote(project, safe=':')}/locations/{self.location}{path}"

    @property
    def sign(self) -> codec.Sign | None:
        """Function that adds the token to a request; None if an API key is used."""
        return None if self.identity is None else self.identity.sign

    def bearer(self, headers: Mapping[str, str]) -> Bearer | None:
        """Return the token bearer with these other headers; None if an API key is used."""
        return None if self.identity is None else Bearer(self.identity, headers)

    def out(self, outgoing: codec.Outgoing, path: str) -> codec.Outgoing:
        """Return a request with `path` under the project and with the token."""
        return msgspec.structs.replace(outgoing, path=self.below(path), sign=self.sign)

    def headers(self, key: str) -> dict[str, str]:
        """Return the header with the API key; empty if a token is used."""
        return {"x-goog-api-key": key} if key and self.identity is None else {}


def access_of(client: ClientSettings, key: str, environ: Mapping[str, str], file: str) -> VertexAccess:
    """Return the access of a client.

    Args:
        key: API key of this client; "" if there is none.
        file: path of the settings, for errors.

    Raises:
        ConfigError: the location is invalid.
        CredentialsError: there are no credentials; the text says what to do.
    """
    location = checked_location(client, environ)
    # A key of the environment does not override a credentials file that the client names.
    if key and (client.api_key or not client.adc_file):
        return VertexAccess(location, None, client.project_id)
    identity = Identity(
        source_of(client, environ, file),
        project_of(client, environ),
        environ,
        name=client.name,
        file=file,
        proxy=client.extra.proxy,
    )
    return VertexAccess(location, identity)
