"""Selection of a client's AWS signer: static keys, or temporary keys that are refreshed before requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from .....protocol.errors import ConfigError, CredentialsError
from .....protocol.settings import ClientSettings
from .keys import keys_of, named_keys, profile_named, profile_of, region_of
from .profiles import ProfileRole, is_asked_for
from .roles import AssumedRole
from .signing import Signer
from .sts import WebIdentity, has_web_identity

if TYPE_CHECKING:
    from .....supervisors import Root


Lender = AssumedRole | ProfileRole | WebIdentity
"""Source of temporary keys. `renew` refreshes them."""


class RoleSigner:
    """Signer with the current temporary keys of a role. Call `role.renew` before each request."""

    def __init__(self, role: Lender, region: str, service: str) -> None:
        self.role = role
        self.region = region
        self.service = service

    def headers(self, method: str, path: str, fields: Iterable[tuple[str, str]], body: bytes) -> dict[str, str]:
        """Return the signature headers, with the parameters of `Signer.headers`."""
        return Signer(self.role.keys(), self.region, self.service).headers(method, path, fields, body)


def signer_of(
    client: ClientSettings, service: str, environ: Mapping[str, str], file: str, root: Root | None
) -> Signer | RoleSigner:
    """Return the signer of a client. Its own keys precede the keys of its profile, and these precede a role.

    This sends no request, so a missing role of the machine is detected only by the first request.

    Args:
        file: path of the settings, for errors.
        root: actor tree under which programs of profiles run.

    Raises:
        ConfigError: there is no region, or an AWS file is unreadable.
        CredentialsError: the keys or the profile of the client are incomplete, or no role is possible.
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
        # AWS_EC2_METADATA_DISABLED excludes the machine's role, but not that of a container.
        no_role = environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
        no_role &= not any(name.startswith("AWS_CONTAINER_CREDENTIALS_") for name in environ)
        if client.access_key_id or client.secret_access_key or client.profile or no_role:
            raise
        return RoleSigner(AssumedRole(environ, str(error)), region, service)
