"""Who signs the requests of a client: keys that are there, or those that are asked for before each request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from .....protocol.errors import ConfigError, CredentialsError
from .....protocol.settings import ClientSettings
from .keys import keys_of, named_keys, profile_named, profile_of, region_of
from .profiles import ProfileRole, is_asked_for
from .roles import Role
from .signing import Signer
from .web_identity import WebIdentity, has_web_identity

if TYPE_CHECKING:
    from .....supervisors import Root


Lender = Role | ProfileRole | WebIdentity
"""Has keys for a while. `renew` sees to it that they are good."""


class RoleSigner:
    """Signs with the keys that a role has lent by then."""

    def __init__(self, role: Lender, region: str, service: str) -> None:
        self.role = role
        self.region = region
        self.service = service

    def headers(self, method: str, path: str, fields: Iterable[tuple[str, str]], body: bytes) -> dict[str, str]:
        """See `Signer.headers`."""
        return Signer(self.role.keys(), self.region, self.service).headers(method, path, fields, body)


def signer_of(
    client: ClientSettings, service: str, environ: Mapping[str, str], file: str, root: Root | None
) -> Signer | RoleSigner:
    """Signs for a client: with keys, if it has any, else with those of its profile, or of a role.

    Args:
        file: where the client stands, for the errors.
        root: programs of profiles are started under it.

    Raises:
        ConfigError: its region is said nowhere, or a file of AWS's can't be read.
        CredentialsError: it names keys or a profile and these are not whole, or there can be no role.
    """
    region = region_of(client, environ)
    if not region:
        raise ConfigError(f"client '{client.name}' has no `region`: set it in {file}, or AWS_REGION")
    profile = profile_of(client, environ)
    if named_keys(client, environ) is None:
        if is_asked_for(profile_named(profile, environ)):
            return RoleSigner(ProfileRole(profile, environ, region, root), region, service)
        if not client.profile and has_web_identity(environ):
            return RoleSigner(WebIdentity(environ, region), region, service)
    try:
        return Signer(keys_of(client, environ), region, service)
    except CredentialsError as error:
        no_role = environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
        no_role &= not any(name.startswith("AWS_CONTAINER_CREDENTIALS_") for name in environ)
        if client.access_key_id or client.secret_access_key or client.profile or no_role:
            raise
        return RoleSigner(Role(environ, str(error)), region, service)
