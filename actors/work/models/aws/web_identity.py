"""The role of a service account of Kubernetes, as EKS gives it to its pods.

AWS_WEB_IDENTITY_TOKEN_FILE       a token that Kubernetes writes, and renews, so it is read each time
AWS_ROLE_ARN                      the role that STS gives for it; AWS_ROLE_SESSION_NAME may name the session
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import trio

from .....protocol.errors import ConfigError, CredentialsError
from ..renewed import Renewed
from .roles import EARLY
from .signing import Keys
from .sts import sts

_FILE = "AWS_WEB_IDENTITY_TOKEN_FILE"
_ROLE = "AWS_ROLE_ARN"


def has_web_identity(environ: Mapping[str, str]) -> bool:
    """Whether the environment names such a role."""
    return bool(environ.get(_FILE) and environ.get(_ROLE))


class WebIdentity:
    """Its keys.

    Args:
        environ: names file and role; for proxies and certificates.
        region: whose STS is asked.
        clock: seconds since the epoch.
    """

    def __init__(self, environ: Mapping[str, str], region: str, clock: Callable[[], float] = time.time) -> None:
        self._environ = environ
        self._region = region
        self._clock = clock
        self._renewed = Renewed(self._ask, early=EARLY, clock=clock)
        self.renew = self._renewed.renew
        """See to it that there are keys. Raises what `Renewed.renew` does."""

    @property
    def named(self) -> str:
        """What says that there is such a role."""
        return _FILE

    def keys(self) -> Keys:
        """Those that `renew` has seen to."""
        if self._renewed.current is None:
            raise CredentialsError(f"{_ROLE} has no keys yet")
        return self._renewed.current

    async def _ask(self) -> tuple[Keys, float]:
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
