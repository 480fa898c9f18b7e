"""AWS keys of a Kubernetes service account (EKS web identity).

AWS_WEB_IDENTITY_TOKEN_FILE       token file that Kubernetes refreshes, so it is read again for each request
AWS_ROLE_ARN                      role to assume with the token; AWS_ROLE_SESSION_NAME may name the session
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import trio

from .....protocol.errors import ConfigError, CredentialsError
from ..renewed import Renewed
from .roles import EARLY
from .signing import AwsKeys
from .sts import sts

_FILE = "AWS_WEB_IDENTITY_TOKEN_FILE"
_ROLE = "AWS_ROLE_ARN"


def has_web_identity(environ: Mapping[str, str]) -> bool:
    """Return True if the environment names a token file and a role."""
    return bool(environ.get(_FILE) and environ.get(_ROLE))


class WebIdentity:
    """Temporary keys of the service account.

    Args:
        environ: environment with token file, role, proxies and certificates.
        region: region of the STS request.
        clock: returns seconds since the epoch.
    """

    def __init__(self, environ: Mapping[str, str], region: str, clock: Callable[[], float] = time.time) -> None:
        self._environ = environ
        self._region = region
        self._clock = clock
        self._renewed = Renewed(self._ask, early=EARLY, clock=clock)
        self.renew = self._renewed.renew
        """Refreshes the keys if they are old. Raises the same errors as `Renewed.renew`."""

    @property
    def named(self) -> str:
        """Description of the source of the keys, for messages."""
        return _FILE

    def keys(self) -> AwsKeys:
        """Return the current keys. Raises CredentialsError before the first `renew`."""
        if self._renewed.current is None:
            raise CredentialsError(f"{_ROLE} has no keys yet")
        return self._renewed.current

    async def _ask(self) -> tuple[AwsKeys, float]:
        try:
            token = (await trio.Path(self._environ[_FILE]).read_text("utf-8")).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{_FILE} can't be read: {error}") from error
        asked = {
            "Action": "AssumeRoleWithWebIdentity",
            "RoleArn": self._environ[_ROLE],
            "RoleSessionName": self._environ.get("AWS_ROLE_SESSION_NAME") or f"callboard-{int(self._clock())}",
            "WebIdentityToken": token,
        }
        return await sts(asked, who=_FILE, region=self._region, environ=self._environ, keys=None)
