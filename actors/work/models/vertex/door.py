"""How requests to Vertex AI get in: with a token, under a project, or with an API key."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from .....protocol.settings import ClientSettings
from .. import codec
from .identity import Bearer, Identity
from .place import EVERYWHERE, checked_location, project_of, source_of


class Door(msgspec.Struct, frozen=True):
    """How requests get in.

    Attributes:
        identity: signs them; None where an API key is enough.
        project: of an API key that is not for express mode; "" else.
    """

    location: str = EVERYWHERE
    identity: Identity | None = None
    project: str = ""

    @property
    def is_express(self) -> bool:
        """Whether there is no project: an API key alone, which is good for Google's own models."""
        return self.identity is None and not self.project

    def below(self, path: str) -> str:
        """The path under the project. An identity has to have its token by now."""
        if self.is_express or path.startswith("/projects/"):
            return path
        project = self.identity.token.project if self.identity is not None else self.project
        return f"/projects/{quote(project, safe=':')}/locations/{self.location}{path}"

    @property
    def sign(self) -> codec.Sign | None:
        """What a request carries; None where its headers are enough."""
        return None if self.identity is None else self.identity.sign

    def bearer(self, headers: Mapping[str, str]) -> Bearer | None:
        """The token with what requests carry besides; None where there is none."""
        return None if self.identity is None else Bearer(self.identity, headers)

    def out(self, outgoing: codec.Outgoing, path: str) -> codec.Outgoing:
        """A request at that path under the project, signed."""
        return msgspec.structs.replace(outgoing, path=self.below(path), sign=self.sign)

    def headers(self, key: str) -> dict[str, str]:
        """The API key, if that is what lets us in."""
        return {"x-goog-api-key": key} if key and self.identity is None else {}


def door_of(client: ClientSettings, key: str, environ: Mapping[str, str], file: str) -> Door:
    """The door for a client.

    Args:
        key: an API key that is for this client; "" where there is none.
        file: where the client stands, for the errors.

    Raises:
        ConfigError: its location is none.
        CredentialsError: there are no credentials; the text says where they were looked for.
    """
    location = checked_location(client, environ)
    if key and (client.api_key or not client.adc_file):
        return Door(location, None, client.project_id)
    identity = Identity(
        source_of(client, environ, file),
        project_of(client, environ),
        environ,
        name=client.name,
        file=file,
        proxy=client.extra.proxy,
    )
    return Door(location, identity)
